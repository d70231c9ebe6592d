"""The settings of one trial: one typed, validated object.

A setting is one field of `TrialConfig`. Its option on the command line with the help text, its key
in config files and grids, its keyword in Python and its line in the docs are all made from it.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
)

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


def read_mask(value: object) -> float | None:
    """Read a mask as people write it, `none`, `-inf` or a number.

    One above 0 is a mask, too, but a trial must say that it means it: `positive_mask`.
    """
    if isinstance(value, str):
        value = value.strip().lower().replace("\N{MINUS SIGN}", "-").replace("\N{INFINITY}", "inf")
    if value is None or value == "none":
        return None
    try:
        mask = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        mask = math.nan
    if isinstance(value, bool) or not mask < math.inf:
        raise ValueError(f"a mask is 'none' or a number in [-inf, 0], not {value!r}")
    return mask


def write_mask(value: float | None) -> float | str | None:
    """The mask as JSON can carry it: null, "-inf", or a number."""
    return "-inf" if value == float("-inf") else value


Mask = Annotated[
    float | None,
    BeforeValidator(read_mask),
    PlainSerializer(write_mask),
    OnCommandLine("MASKS", several=True),
]


def read_weights(texts: Iterable[object]) -> dict[str, float]:
    """Read weights as the command line has them, each as `gamma=0.5`."""
    weights = {}
    for text in texts:
        name, _, value = str(text).partition("=")
        try:
            weights[name.strip()] = float(value)
        except ValueError:
            raise SettingsError(
                f"{text!r} is no weight: say its name and value, gamma=0.5"
            ) from None
    return weights


def _check_positive(positive: bool, info: ValidationInfo) -> bool:
    if "mask" not in info.data:  # it is wrong by itself
        return positive
    mask = info.data["mask"]
    above = mask is not None and mask > 0
    if above and not positive:
        raise ValueError(
            f"a mask is 'none' or a number in [-inf, 0]; say positive_mask, on the command line "
            f"--positive-mask, if {mask:g} is meant"
        )
    if positive and not above:
        raise ValueError("it says that the mask is above 0, which it is not: leave it out")
    return positive


def _check_stored(masked: bool, info: ValidationInfo) -> bool:
    mask = info.data.get("mask", 0.0)
    if masked and (mask is None or math.isinf(mask)):
        raise ValueError(
            "logits can be stored with a finite mask in them, such as -1; nobody can be taught "
            "-inf, and without a mask there is nothing to store"
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


Integer = Annotated[int, Field(ge=-INT64, lt=INT64)]
Name = Annotated[str, AfterValidator(_check_name)]

Weights = Annotated[
    tuple[tuple[Name, float], ...],
    BeforeValidator(_sort_weights),
    AfterValidator(_check_weights),
    PlainSerializer(_by_name),
    OnCommandLine("NAME=X", repeated_as="weight"),
]


def _read_integers(value: object) -> object:
    """Whole numbers from a text such as `35,45`, or from a list."""
    if not isinstance(value, str | list | tuple | range):
        return value
    try:
        return [int(str(part)) for part in (value.split(",") if isinstance(value, str) else value)]
    except ValueError:
        raise ValueError("whole numbers are needed, with commas between them") from None


def _read_order(value: object) -> object:
    """A single number in a text is the seed to draw an order from; in a list, it is the order."""
    numbers = _read_integers(value)
    single = isinstance(value, str) and isinstance(numbers, list) and len(numbers) == 1
    return numbers[0] if single else numbers  # type: ignore[index]


def _check_drops(drops: tuple[int, ...]) -> tuple[int, ...]:
    if any(drop < 1 for drop in drops) or any(b <= a for a, b in pairwise(drops)):
        raise ValueError("epochs are counted from 1, each later than the one before")
    return drops


COMMON_WEIGHTS = ("alpha", "beta")
"""Weights that several methods have, with a field of their own; the others are in `weights`."""


IDENTITY = ("benchmark", "method", "mask", "buffer", "seed")
"""The fields that say which trial; all others are settings, which may be published for these."""


class TrialConfig(BaseModel):
    """Everything that determines a trial. Two trials with equal configs have equal results."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    benchmark: Annotated[Name, OnCommandLine("NAMES", several=True)] = Field(
        description="What to learn: a name that `remask benchmarks` lists, or your own, "
        "`module:function`. Several: `split-mnist,split-cifar10`. Default: `split-digits`.",
    )
    method: Annotated[Name, OnCommandLine("NAMES", several=True)] = Field(
        description="How to learn it: a name that `remask methods` lists, or your own, "
        "`module:Class`. Several: `er,derpp`. Default: `er`.",
    )
    mask: Mask = Field(
        None,
        description="What the logits of absent classes are set to: `none`, `-inf` or a number up "
        "to 0. Several: `none,-1,-inf`.",
    )
    buffer: Annotated[int, OnCommandLine("SIZES", several=True)] = Field(
        0, ge=0, le=10_000_000, description="Samples that the memory holds. Several: `200,500`."
    )
    seed: int = Field(
        0,
        ge=0,
        lt=INT64,
        description="What all random numbers are drawn from; of several trials, the first has this "
        "one. Default: 0.",
    )
    net: Name = Field(
        "mlp",
        description="The network: `mlp`, `resnet18`, `resnet18:20` for width 20, or your own, "
        "`module:function`.",
    )
    lr: float = Field(gt=0, allow_inf_nan=False, description="Learning rate.")
    batch: int = Field(ge=1, lt=INT64, description="Samples of the stream per step.")
    replay_batch: int = Field(0, ge=0, lt=INT64, description="Samples per draw from memory.")
    epochs: int = Field(ge=1, lt=INT64, description="Passes over each task.")
    alpha: float = Field(
        0.0, ge=0, allow_inf_nan=False, description="Weight of the distillation (DER, DER++)."
    )
    beta: float = Field(
        0.0, ge=0, allow_inf_nan=False, description="Weight of the replayed labels (DER++)."
    )
    weights: Weights = Field(
        (), description="A setting that only this method has, by name. May be repeated."
    )
    lr_drops: Annotated[
        tuple[Integer, ...],
        BeforeValidator(_read_integers),
        AfterValidator(_check_drops),
        OnCommandLine("EPOCHS"),
    ] = Field(
        (),
        description="Epochs of each task after which the learning rate falls to a tenth: `35,45`.",
    )

    tasks: int | None = Field(
        None, ge=1, lt=INT64, description="How many tasks the classes are divided into."
    )
    class_order: Annotated[
        Integer | tuple[Integer, ...] | None, BeforeValidator(_read_order), OnCommandLine("ORDER")
    ] = Field(
        None,
        description="The order in which classes are learnt, `3,1,0,2`, or one number: a seed to "
        "draw it from. Default: by label.",
    )
    limit: int | None = Field(
        None, ge=1, lt=INT64, description="Keep only this many samples of each class."
    )
    validation: Annotated[float, OnCommandLine("SHARE")] = Field(
        0.0,
        ge=0,
        lt=1,
        description="Hold out this share of each class's training data, such as 0.1, and measure "
        "on it as well: what to choose settings by.",
    )
    task_free: bool = Field(
        False,
        description="Tell no task boundaries: the active classes are those of the batch's labels.",
    )

    positive_mask: Annotated[bool, AfterValidator(_check_positive)] = Field(
        False,
        validate_default=True,
        description="Allow a mask above 0, which the paper does not have.",
    )
    mask_stored: Annotated[bool, AfterValidator(_check_stored)] = Field(
        False,
        description="Store logits as the mask leaves them, not the raw ones (DER, DER++). The mask "
        "must be finite.",
    )
    fade: float = Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description="How the mask fades: the share min(1, fade * buffer / samples so far) of the "
        "stream's loss is without it. At 0 it never fades.",
    )
    evaluate_every: int = Field(
        0,
        ge=0,
        lt=INT64,
        description="Also measure accuracy within tasks, every so many steps, on a few test "
        "samples of each class; changes no other result. 50 costs less than 5 % more time. "
        "Default: 0, only after each task.",
    )

    @property
    def cell(self) -> Self:
        """The config without its seed: what trials that are averaged have in common."""
        return self.model_copy(update={"seed": 0})

    @property
    def hash(self) -> str:
        """The trial's identity: the SHA-256 of its canonical form, in hex."""
        return hashlib.sha256(self.canonical.encode("ascii")).hexdigest()

    @property
    def canonical(self) -> str:
        """The config as the text that its hash is taken of.

        ASCII JSON without spaces: the fields in alphabetical order, each mask as null, "-inf" or a
        number, each float in the shortest form that reads back as the same number, -0.0 as 0.0. A
        field that has its default value is left out, so that a field added later, with a default
        that means "as before", leaves the hashes of earlier configs alone. In return a default
        must never change: it would give old hashes a new meaning.
        """
        fields = type(self).model_fields
        chosen = {
            name: value + 0.0 if isinstance(value, float) else value
            for name, value in self.model_dump(mode="json").items()
            if fields[name].is_required() or getattr(self, name) != fields[name].get_default()
        }
        return json.dumps(chosen, sort_keys=True, separators=(",", ":"), allow_nan=False)

    def weight(self, name: str) -> float:
        """A weight of the method's loss, wherever it is kept."""
        return float(getattr(self, name) if name in COMMON_WEIGHTS else dict(self.weights)[name])

    def shape(self) -> tuple[Any, ...]:
        """What trials of one stack must have in common; the rest may differ within a stack."""
        free = {"seed", "mask", "positive_mask", "fade", "lr", "weights", *COMMON_WEIGHTS}
        return tuple(value for name, value in self if name not in free)
