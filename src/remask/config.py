"""The settings of one trial: one typed, validated object.

A setting is one field of `TrialConfig`. Its option on the command line with the help text, its key
in config files and grids, its keyword in Python and its line in the docs are all made from it.
"""

import hashlib
import json
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from remask.setting_types import (
    INT64,
    Integer,
    Mask,
    MemoryPolicy,
    Name,
    OnCommandLine,
    Precision,
    Weights,
    check_drops,
    check_positive_mask,
    check_stored_mask,
    read_integers,
    read_order,
)

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
        description="What the logits of absent classes are set to: `none`, `-inf`, a number up to "
        "0, or `auto` to have it chosen. Several: `none,-1,-inf`.",
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
        (),
        description="A setting that only this method has, by name. May be repeated. Several "
        "values: `gamma=0.5,1`.",
    )
    lr_drops: Annotated[
        tuple[Integer, ...],
        BeforeValidator(read_integers),
        AfterValidator(check_drops),
        OnCommandLine("EPOCHS"),
    ] = Field(
        (),
        description="Epochs of each task after which the learning rate falls to a tenth: `35,45`.",
    )

    tasks: int | None = Field(
        None, ge=1, lt=INT64, description="How many tasks the classes are divided into."
    )
    class_order: Annotated[
        Integer | tuple[Integer, ...] | None, BeforeValidator(read_order), OnCommandLine("ORDER")
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

    positive_mask: Annotated[bool, AfterValidator(check_positive_mask)] = Field(
        False,
        validate_default=True,
        description="Allow a mask above 0, which the paper does not have.",
    )
    mask_stored: Annotated[bool, AfterValidator(check_stored_mask)] = Field(
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
    fade_power: float = Field(
        1.0,
        ge=1,
        allow_inf_nan=False,
        description="That share to this power: the higher, the less of it in long streams.",
    )
    evaluate_every: int = Field(
        0,
        ge=0,
        lt=INT64,
        description="Also measure accuracy within tasks, every so many steps, on a few test "
        "samples of each class; changes no other result. 10 costs up to a tenth more time. "
        "Default: 0, only after each task.",
    )
    memory: Annotated[MemoryPolicy, OnCommandLine("POLICY")] = Field(
        "reservoir",
        description="What the memory keeps: `reservoir`, a uniform sample of all that has come, in "
        "every epoch anew, `balanced`, as many samples of each class as it can, each once, or "
        "`merging`, a reservoir into which the samples that it does not keep are merged. For "
        "methods whose memory is a reservoir.",
    )
    precision: Annotated[Precision, OnCommandLine("PRECISION")] = Field(
        "float32",
        description="What layers compute in: `float32`, or `bf16`, which makes convolutions faster "
        "on devices that have it. Weights and losses stay float32.",
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
        """The weight `name` of the method's loss."""
        if name in COMMON_WEIGHTS:
            return float(getattr(self, name))
        return float(dict(self.weights)[name])

    def shape(self) -> tuple[Any, ...]:
        """What trials of one stack must have in common; the rest may differ within a stack."""
        free = {
            "seed",
            "mask",
            "positive_mask",
            "fade",
            "fade_power",
            "lr",
            "weights",
            *COMMON_WEIGHTS,
        }
        return (self.mask == "auto", *(value for name, value in self if name not in free))
