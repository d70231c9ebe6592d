"""The types of settings: how each is read, checked, written and given on a command line."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, ValidationError

from remask.errors import SettingsError

INT64 = 2**63
"""Integers stay below it, so that databases and tables can hold them."""
_LONGEST_NAME = 500
_LONGEST_VALUE = 200  # characters of a wrong value in a message
_MOST_ERRORS = 5  # in a message


@dataclass(frozen=True)
class OnCommandLine:
    """How a setting is given on a command line, where its type does not define it."""

    metavar: str
    """The placeholder of the value in help texts."""
    several: bool = False
    """Whether it takes comma-separated values, for a trial of each."""
    repeated_as: str | None = None
    """The option's name, for a setting that is given by repeating an option."""


MaskValue = float | Literal["auto"] | None
"""A number up to 0 or -inf, "auto" if the trial chooses it, or None for no mask."""


def read_mask(value: object) -> MaskValue:
    """Read a mask: `none`, `auto`, `-inf` or a number."""
    if isinstance(value, str):
        value = value.strip().lower().replace("\N{MINUS SIGN}", "-").replace("\N{INFINITY}", "inf")
    if value is None or value == "none":
        return None
    if value == "auto":
        return "auto"
    try:
        mask = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        mask = math.nan
    if isinstance(value, bool) or not mask < math.inf:
        raise ValueError(f"a mask is 'none', 'auto' or a number in [-inf, 0], not {value!r}")
    return mask


def write_mask(value: MaskValue) -> float | str | None:
    """The mask as a JSON value: null, "auto", "-inf", or a number."""
    return "-inf" if value == float("-inf") else value


Mask = Annotated[
    MaskValue,
    BeforeValidator(read_mask),
    PlainSerializer(write_mask),
    OnCommandLine("MASKS", several=True),
]


def read_weights(texts: Iterable[object]) -> dict[str, list[float]]:
    """Read weights given as `gamma=0.5`, or with several values as `gamma=0.5,1`."""
    weights = {}
    for text in texts:
        name, _, values = str(text).partition("=")
        try:
            weights[name.strip()] = list(dict.fromkeys(map(float, values.split(","))))
        except ValueError:
            raise SettingsError(
                f"invalid weight {text!r}; use NAME=VALUE, or NAME=VALUE,VALUE for several"
            ) from None
    return weights


def _sort_weights(value: object) -> object:
    """Turn a mapping into sorted pairs, because a config must be hashable."""
    return sorted(value.items()) if isinstance(value, Mapping) else value


def _check_weights(weights: tuple[tuple[str, float], ...]) -> tuple[tuple[str, float], ...]:
    if len(dict(weights)) < len(weights):
        raise ValueError("a weight is given twice")
    for name, value in weights:
        if not math.isfinite(value):
            raise ValueError(f"{name} must be finite, got {value}")
    return tuple((name, value + 0.0) for name, value in weights)  # + 0.0 turns -0.0 into 0.0


def _check_name(name: str) -> str:
    if not name.isprintable() or len(name) > _LONGEST_NAME:
        raise ValueError(f"use at most {_LONGEST_NAME} characters, and no control characters")
    return name


Precision = Literal["float32", "bf16"]
Protocol = Literal["paper", "online"]
MemoryPolicy = Literal["reservoir", "balanced", "merging"]
Integer = Annotated[int, Field(ge=-INT64, lt=INT64)]
Name = Annotated[str, AfterValidator(_check_name)]

Weights = Annotated[
    tuple[tuple[Name, float], ...],
    BeforeValidator(_sort_weights),
    AfterValidator(_check_weights),
    PlainSerializer(lambda weights: dict(weights), return_type=dict[str, float]),
    OnCommandLine("NAME=X", repeated_as="weight"),
]


def _read_integers(value: object) -> object:
    """Read whole numbers from a text such as `35,45`, or from a list."""
    if not isinstance(value, str | list | tuple | range):
        return value
    try:
        return [int(str(part)) for part in (value.split(",") if isinstance(value, str) else value)]
    except ValueError:
        raise ValueError("use comma-separated whole numbers") from None


def _read_order(value: object) -> object:
    """A single number in a text is a seed; in a list, it is the order."""
    if isinstance(value, str) and value.strip() == "seed":
        return "seed"
    numbers = _read_integers(value)
    single = isinstance(value, str) and isinstance(numbers, list) and len(numbers) == 1
    return numbers[0] if single else numbers  # type: ignore[index]


def _check_drops(drops: tuple[int, ...]) -> tuple[int, ...]:
    if any(drop < 1 for drop in drops) or any(b <= a for a, b in pairwise(drops)):
        raise ValueError("epochs count from 1 and must ascend")
    return drops


Epochs = Annotated[
    tuple[Integer, ...],
    BeforeValidator(_read_integers),
    AfterValidator(_check_drops),
    OnCommandLine("EPOCHS"),
]
ClassOrder = Annotated[
    Literal["seed"] | Integer | tuple[Integer, ...] | None,
    BeforeValidator(_read_order),
    OnCommandLine("ORDER"),
]


def describe_errors(error: ValidationError) -> str:
    """A validation error for people: the first fields, their values, and what is allowed."""
    problems = []
    for problem in error.errors()[:_MOST_ERRORS]:
        allowed = problem["msg"].removeprefix("Value error, ").removeprefix("Input ")
        field = ".".join(map(str, problem["loc"]))
        value = "" if problem["type"] == "missing" else f" = {_short(problem['input'])}"
        problems.append(f"{field}{value}: {allowed}" if field else allowed)
    return "; ".join(problems)


def _short(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python does not print whole numbers of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."
