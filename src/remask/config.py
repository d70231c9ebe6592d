"""The settings of one trial: one typed, validated object.

A setting is one field of `TrialConfig`. Its command-line option and help text, its key in config
files and grids, its keyword in Python and its line in the docs are generated from it.
"""

import hashlib
import json
import math
from operator import attrgetter
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from remask.setting_types import (
    INT64,
    ClassOrder,
    Epochs,
    Mask,
    MemoryPolicy,
    Name,
    OnCommandLine,
    Precision,
    Protocol,
    Weights,
)

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


class TrialConfig(BaseModel):
    """Everything that determines a trial. Two trials with equal configs have equal results."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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
        description="How trials are run: as in the `paper`, or `online`, as in that of ER-ACE: "
        "pixels in [-1, 1]; stream and replay in separate forward passes, whose losses are "
        "summed. Other settings default to those published for it.",
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
