"""The settings of one trial: one typed, validated object.

A setting is one field of `TrialConfig`. Its command-line option and help text, its key in config
files and grids, its keyword in Python and its line in the docs are generated from it.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    PlainSerializer,
    model_validator,
)

INT64 = 2**63
"""Integers stay below it, so that databases and tables can hold them."""
_LONGEST_NAME = 500


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


def _check_name(name: str) -> str:
    if not name.isprintable() or len(name) > _LONGEST_NAME:
        raise ValueError(f"use at most {_LONGEST_NAME} characters, and no control characters")
    return name


def _check_weights(weights: tuple[tuple[str, float], ...]) -> tuple[tuple[str, float], ...]:
    if len(dict(weights)) < len(weights):
        raise ValueError("a weight is given twice")
    for name, value in weights:
        if not math.isfinite(value):
            raise ValueError(f"{name} must be finite, got {value}")
    return tuple((name, value + 0.0) for name, value in weights)  # + 0.0 turns -0.0 into 0.0


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


Precision = Literal["float32", "bf16"]
Protocol = Literal["paper", "online", "rethinking"]
MemoryPolicy = Literal["reservoir", "balanced", "merging"]
Integer = Annotated[int, Field(ge=-INT64, lt=INT64)]
Name = Annotated[str, AfterValidator(_check_name)]
Mask = Annotated[
    MaskValue,
    BeforeValidator(read_mask),
    PlainSerializer(write_mask),
    OnCommandLine("MASKS", several=True),
]
Weights = Annotated[  # sorted pairs, because a config must be hashable
    tuple[tuple[Name, float], ...],
    BeforeValidator(lambda given: sorted(given.items()) if isinstance(given, Mapping) else given),
    AfterValidator(_check_weights),
    PlainSerializer(lambda weights: dict(weights), return_type=dict[str, float]),
    OnCommandLine("NAME=X", repeated_as="weight"),
]
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

COMMON_WEIGHTS = ("alpha", "beta")
"""Weights of several methods, each with a field of its own; the others are in `weights`."""
IDENTITY = ("benchmark", "method", "mask", "buffer", "seed")
"""The fields that identify a trial; the other fields are settings with published values."""
CONDITIONS = ("protocol", "augment", "share")
"""The fields that select the published settings, besides benchmark, method and buffer."""
_PER_TRIAL = {
    *("seed", "mask", "positive_mask", "fade", "fade_power", "lr", "weights"),
    *COMMON_WEIGHTS,
}
"""The fields in which the trials of a stack may differ."""


class TrialConfig(BaseModel, frozen=True, extra="forbid"):
    """Everything that determines a trial. Two trials with equal configs have equal results."""

    benchmark: Annotated[Name, OnCommandLine("NAMES", several=True)] = Field(
        description="The data: a name listed by `remask benchmarks`, or your own, "
        "`module:function`. Several: `split-mnist,split-cifar10`. Default: `split-digits`.",
    )
    method: Annotated[Name, OnCommandLine("NAMES", several=True)] = Field(
        description="The method: a name listed by `remask methods`, or your own, "
        "`module:Class`. Several: `er,derpp`. Default: `er`.",
    )
    mask: Mask = Field(
        None,
        description="The value of the logits of absent classes: `none`, `-inf`, a number up to 0, "
        "or `auto` to choose one. Several: `none,-1,-inf`.",
    )
    buffer: Annotated[int, OnCommandLine("SIZES", several=True)] = Field(
        0, ge=0, le=10_000_000, description="Samples in memory. Several: `200,500`."
    )
    seed: int = Field(
        0,
        ge=0,
        lt=INT64,
        description="The seed of all random numbers; of several trials, the first one. Default: 0.",
    )
    net: Name = Field(
        "mlp",
        description="The network: `mlp`, `resnet18`, either with a width, `mlp:256` or "
        "`resnet18:20`, or your own, `module:function`.",
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
        (),
        description="A setting that only this method has, by name. May be repeated. Several "
        "values: `gamma=0.5,1`.",
    )
    lr_drops: Epochs = Field(
        (),
        description="Epochs of each task after which the learning rate falls to a tenth: `35,45`.",
    )
    tasks: int | None = Field(
        None, ge=1, lt=INT64, description="Number of tasks that the classes are divided into."
    )
    class_order: ClassOrder = Field(
        None,
        description="The order in which classes are learnt: `3,1,0,2`, a seed to draw it from, or "
        "`seed` to draw it from the seed of each trial. Default: by label.",
    )
    limit: int | None = Field(
        None, ge=1, lt=INT64, description="Keep only this many samples of each class."
    )
    blur: Annotated[float, OnCommandLine("SHARE")] = Field(
        0.0,
        ge=0,
        lt=1,
        description="Blur the borders of tasks: move this share of each task's training data to "
        "the tasks beside it. Classes that are in a task's training data are active in it.",
    )
    share: Annotated[float, OnCommandLine("SHARE")] = Field(
        1.0,
        gt=0,
        le=1,
        description="Learn only this share of each class's training data, drawn by the seed; the "
        "test data stay complete.",
    )
    validation: Annotated[float, OnCommandLine("SHARE")] = Field(
        0.0,
        ge=0,
        lt=1,
        description="Hold out this share of each class's training data, such as 0.1, and measure "
        "on it as well, to choose settings by.",
    )
    task_free: bool = Field(
        False,
        description="Hide task boundaries: the active classes are those of the batch's labels.",
    )
    protocol: Annotated[Protocol, OnCommandLine("PROTOCOL")] = Field(
        "paper",
        description="How trials are run: as in the `paper`; `online`, as in that of ER-ACE, with "
        "pixels in [-1, 1], and stream and replay in separate forward passes, whose losses are "
        "summed; or `rethinking`, as in *Rethinking experience replay*. Other settings default to "
        "those published for it.",
    )
    augment: bool = Field(
        True,
        description="Crop and flip training images at random, in benchmarks that do.",
    )

    positive_mask: bool = Field(
        False, description="Allow a mask above 0, which the paper does not have."
    )
    mask_stored: bool = Field(
        False,
        description="Store the masked logits instead of the raw ones (DER, DER++). The mask must "
        "be finite.",
    )
    fade: float = Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description="How the mask fades: the share min(1, fade * buffer / samples so far) of the "
        "stream's loss is not masked. 0: it does not fade.",
    )
    fade_power: float = Field(
        1.0,
        ge=1,
        allow_inf_nan=False,
        description="The power of this share; a higher one fades the mask less in long streams.",
    )
    evaluate_every: int = Field(
        0,
        ge=0,
        lt=INT64,
        description="Also measure accuracy within tasks, every N steps, on a few test samples of "
        "each class; changes no other result. 10 takes up to a tenth more time. Default: 0, only "
        "after each task.",
    )
    memory: Annotated[MemoryPolicy, OnCommandLine("POLICY")] = Field(
        "reservoir",
        description="What the memory keeps: `reservoir`, a uniform sample of the stream, redrawn "
        "in every epoch; `balanced`, equally many samples of each class, each once; or `merging`, "
        "a reservoir into which samples that are not kept are merged. For methods with a "
        "reservoir.",
    )
    precision: Annotated[Precision, OnCommandLine("PRECISION")] = Field(
        "float32",
        description="The precision of layers: `float32`, or `bf16`, with faster convolutions on "
        "devices that support it. Weights and losses stay float32.",
    )

    @model_validator(mode="after")
    def _check_mask(self) -> Self:
        """Refuse settings of the mask that contradict each other."""
        number = self.mask if isinstance(self.mask, float) else None
        if number is not None and number > 0 and not self.positive_mask:
            raise ValueError(f"mask = {number:g}: must be in [-inf, 0] unless positive_mask is set")
        if self.positive_mask and (number is None or number <= 0):
            raise ValueError("positive_mask needs a mask above 0")
        if self.mask_stored and (number is None or math.isinf(number)):
            raise ValueError("mask_stored needs a finite mask, such as -1")
        if self.fade and number is None:
            raise ValueError("fade needs a mask" + " other than 'auto'" * (self.mask == "auto"))
        if self.fade_power != 1 and not self.fade:
            raise ValueError("fade_power needs fade > 0")
        if self.mask == "auto" and self.task_free:
            raise ValueError("mask 'auto' is chosen at the end of a task, so task_free excludes it")
        return self

    @property
    def cell(self) -> Self:
        """The config with seed 0, which all trials of a cell share."""
        return self.model_copy(update={"seed": 0})

    @property
    def code(self) -> tuple[str, str, str]:
        """The names that may be of the user's own code."""
        return self.benchmark, self.method, self.net

    @property
    def hash(self) -> str:
        """The trial's identity: the SHA-256 of its canonical form, in hex."""
        return hashlib.sha256(self.canonical.encode("ascii")).hexdigest()

    @property
    def canonical(self) -> str:
        """The text that is hashed.

        ASCII JSON without spaces: the fields in alphabetical order, a mask as null, "auto", "-inf"
        or a number, floats in their shortest form, -0.0 as 0.0. Fields with their default value are
        left out, so a field that is added later leaves the hashes of earlier configs unchanged. A
        default must never change: it would change the meaning of stored hashes.
        """
        chosen = {
            name: value + 0.0 if isinstance(value, float) else value
            for name, value in self.model_dump(mode="json", exclude_defaults=True).items()
        }
        return json.dumps(chosen, sort_keys=True, separators=(",", ":"), allow_nan=False)

    def weight(self, name: str) -> float:
        """The weight `name` of the method's loss."""
        if name in COMMON_WEIGHTS:
            return float(getattr(self, name))
        return float(dict(self.weights)[name])

    @property
    def split(self) -> dict[str, Any]:
        """The arguments of `load_benchmark` that select the tasks of the trial."""
        order = self.seed if self.class_order == "seed" else self.class_order
        blur = self.blur or None
        return {"tasks": self.tasks, "class_order": order, "limit": self.limit, "blur": blur}

    def shape(self) -> tuple[Any, ...]:
        """The values that all trials of a stack share."""
        return (self.mask == "auto", self.split["class_order"], *_shared_fields(self))


_shared_fields = attrgetter(*(name for name in TrialConfig.model_fields if name not in _PER_TRIAL))
