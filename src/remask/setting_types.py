"""The types of settings: how each is read, checked and written, and how a command line has it."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, ValidationInfo

from remask.errors import SettingsError


@dataclass(frozen=True)
class OnCommandLine:
    """How a setting is written on a command line, where its type alone does not tell."""

    metavar: str
    """What stands for the value in help texts."""
    several: bool = False
    """Whether several values, with commas between them, ask for the trials of each."""
    repeated_as: str | None = None
    """The option's name, for a setting that is given by repeating an option, a part at a time."""


MaskValue = float | Literal["auto"] | None
"""A mask: a number up to 0 or -inf, "auto" where the trial chooses it, or None for no mask."""


def read_mask(value: object) -> MaskValue:
    """Read a mask as people write it, `none`, `auto`, `-inf` or a number.

    One above 0 is a mask, too, but a trial must say that it means it: `positive_mask`.
    """
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
    """The mask as JSON can carry it: null, "auto", "-inf", or a number."""
    return "-inf" if value == float("-inf") else value


Mask = Annotated[
    MaskValue,
    BeforeValidator(read_mask),
    PlainSerializer(write_mask),
    OnCommandLine("MASKS", several=True),
]


def read_weights(texts: Iterable[object]) -> dict[str, float]:
    """Read weights as the command line has them, each as `gamma=0.5`."""
    weights = {}
    for name, values in read_weight_lists(texts).items():
        if len(values) > 1:
            raise SettingsError(f"the weight {name} has several values here; say one")
        weights[name] = values[0]
    return weights


def read_weight_lists(texts: Iterable[object]) -> dict[str, list[float]]:
    """Read weights that may have several values, each as `gamma=0.5,1`."""
    weights = {}
    for text in texts:
        name, _, values = str(text).partition("=")
        try:
            weights[name.strip()] = list(dict.fromkeys(map(float, values.split(","))))
        except ValueError:
            raise SettingsError(
                f"{text!r} is no weight: say its name and value, gamma=0.5, or several values, "
                f"gamma=0.5,1"
            ) from None
    return weights


def check_positive_mask(positive: bool, info: ValidationInfo) -> bool:
    """A mask above 0 must be meant, and only such a one."""
    if "mask" not in info.data:  # it is wrong by itself
        return positive
    mask = info.data["mask"]
    above = isinstance(mask, float) and mask > 0
    if above and not positive:
        raise ValueError(
            f"a mask is 'none', 'auto' or a number in [-inf, 0]; say positive_mask, on the command "
            f"line --positive-mask, if {mask:g} is meant"
        )
    if positive and not above:
        raise ValueError("it says that the mask is above 0, which it is not: leave it out")
    return positive


def check_stored_mask(masked: bool, info: ValidationInfo) -> bool:
    """Only a finite mask can be stored."""
    mask = info.data.get("mask", 0.0)
    if masked and not (isinstance(mask, float) and math.isfinite(mask)):
        raise ValueError(
            "logits can be stored with a finite mask in them, such as -1; nobody can be taught "
            "-inf, without a mask there is nothing to store, and auto may choose either"
        )
    return masked


def _sort_weights(value: object) -> object:
    """Accept a mapping; keep sorted pairs, because a config must be hashable."""
    return sorted(value.items()) if isinstance(value, Mapping) else value


def _check_weights(weights: tuple[tuple[str, float], ...]) -> tuple[tuple[str, float], ...]:
    if len(dict(weights)) < len(weights):
        raise ValueError("every weight has one value")
    for name, value in weights:
        if not math.isfinite(value):
            raise ValueError(f"{name} must be a finite number, not {value}")
    return tuple((name, value + 0.0) for name, value in weights)  # + 0.0: one zero, not two


def _by_name(weights: tuple[tuple[str, float], ...]) -> dict[str, float]:
    return dict(weights)


INT64 = 2**63
"""Integers are kept below it: neither databases nor tables have room for larger ones."""
_LONGEST_NAME = 500


def _check_name(name: str, info: ValidationInfo) -> str:
    # A store of an earlier version may hold any name: it stays readable, and is cleaned when shown.
    if info.context and info.context.get("stored"):
        return name
    if not name.isprintable() or len(name) > _LONGEST_NAME:
        raise ValueError(f"a name has no control characters, and at most {_LONGEST_NAME} others")
    return name


Precision = Literal["float32", "bf16"]
MemoryPolicy = Literal["reservoir", "balanced", "merging"]
Integer = Annotated[int, Field(ge=-INT64, lt=INT64)]
Name = Annotated[str, AfterValidator(_check_name)]

Weights = Annotated[
    tuple[tuple[Name, float], ...],
    BeforeValidator(_sort_weights),
    AfterValidator(_check_weights),
    PlainSerializer(_by_name),
    OnCommandLine("NAME=X", repeated_as="weight"),
]


def read_integers(value: object) -> object:
    """Whole numbers from a text such as `35,45`, or from a list."""
    if not isinstance(value, str | list | tuple | range):
        return value
    try:
        return [int(str(part)) for part in (value.split(",") if isinstance(value, str) else value)]
    except ValueError:
        raise ValueError("whole numbers are needed, with commas between them") from None


def read_order(value: object) -> object:
    """A single number in a text is the seed to draw an order from; in a list, it is the order."""
    numbers = read_integers(value)
    single = isinstance(value, str) and isinstance(numbers, list) and len(numbers) == 1
    return numbers[0] if single else numbers  # type: ignore[index]


def check_drops(drops: tuple[int, ...]) -> tuple[int, ...]:
    """Epochs in ascending order, counted from 1."""
    if any(drop < 1 for drop in drops) or any(b <= a for a, b in pairwise(drops)):
        raise ValueError("epochs are counted from 1, each later than the one before")
    return drops
