"""The settings of one trial: one typed, validated object."""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
)


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


Mask = Annotated[float | None, BeforeValidator(read_mask), PlainSerializer(write_mask)]


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


def _read_weights(value: object) -> object:
    """Accept a mapping; keep sorted pairs, because a config must be hashable."""
    return sorted(value.items()) if isinstance(value, Mapping) else value


def _check_weights(weights: tuple[tuple[str, float], ...]) -> tuple[tuple[str, float], ...]:
    if len(dict(weights)) < len(weights):
        raise ValueError("every weight has one value")
    for name, value in weights:
        if not math.isfinite(value):
            raise ValueError(f"{name} must be a finite number, not {value}")
    return tuple((name, value + 0.0) for name, value in weights)  # + 0.0: one zero, not two


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
    BeforeValidator(_read_weights),
    AfterValidator(_check_weights),
    PlainSerializer(dict, return_type=dict[str, float]),
]


def _check_drops(drops: tuple[int, ...]) -> tuple[int, ...]:
    if any(drop < 1 for drop in drops) or any(b <= a for a, b in pairwise(drops)):
        raise ValueError("epochs are counted from 1, each later than the one before")
    return drops


COMMON_WEIGHTS = ("alpha", "beta")
"""Weights that several methods have, with a field of their own; the others are in `weights`."""


class TrialConfig(BaseModel):
    """Everything that determines a trial. Two trials with equal configs have equal results."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    benchmark: Name = Field(description="the benchmark's name")
    method: Name = Field(description="the method's name")
    mask: Mask = Field(None, description="what absent classes' logits are set to; none = no mask")
    buffer: int = Field(
        0, ge=0, le=10_000_000, description="capacity of the replay memory, samples"
    )
    seed: int = Field(0, ge=0, lt=INT64, description="determines weights, order, memory and draws")
    net: Name = Field("mlp", description="the network's name")
    lr: float = Field(gt=0, allow_inf_nan=False, description="learning rate")
    batch: int = Field(ge=1, lt=INT64, description="samples of the stream in a step")
    replay_batch: int = Field(0, ge=0, lt=INT64, description="samples in one draw from memory")
    epochs: int = Field(ge=1, lt=INT64, description="passes over each task")
    alpha: float = Field(0.0, ge=0, allow_inf_nan=False, description="weight of the distillation")
    beta: float = Field(0.0, ge=0, allow_inf_nan=False, description="weight of the replayed labels")
    weights: Weights = Field((), description="settings that only this method has, by name")
    lr_drops: Annotated[tuple[Integer, ...], AfterValidator(_check_drops)] = Field(
        (), description="epochs of each task after which the learning rate falls to a tenth"
    )

    tasks: int | None = Field(None, ge=1, lt=INT64, description="deal the classes to so many tasks")
    class_order: Integer | tuple[Integer, ...] | None = Field(
        None, description="the order of the classes, or the seed to draw it from; none: by label"
    )
    limit: int | None = Field(
        None, ge=1, lt=INT64, description="keep only so many samples of each class"
    )
    validation: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="hold out this share of each class's training data, and measure on it, too",
    )
    task_free: bool = Field(
        False, description="tell no task boundaries: a batch's own labels are its active classes"
    )

    positive_mask: Annotated[bool, AfterValidator(_check_positive)] = Field(
        False, validate_default=True, description="whether the mask may be above 0"
    )
    mask_stored: Annotated[bool, AfterValidator(_check_stored)] = Field(
        False, description="store logits as the mask leaves them, not the raw ones"
    )
    fade: float = Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description="the mask fades to the share min(1, fade * buffer / samples so far); 0: never",
    )

    def weight(self, name: str) -> float:
        """A weight of the method's loss, wherever it is kept."""
        return float(getattr(self, name) if name in COMMON_WEIGHTS else dict(self.weights)[name])

    def shape(self) -> tuple[Any, ...]:
        """What trials of one stack must have in common; the rest may differ within a stack."""
        free = {"seed", "mask", "positive_mask", "fade", "lr", "weights", *COMMON_WEIGHTS}
        return tuple(value for name, value in self if name not in free)
