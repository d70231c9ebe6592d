"""The settings of a learner, and the config that its engine gets of them."""

import re
from typing import Annotated, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from remask.config import COMMON_WEIGHTS, TrialConfig
from remask.engine import DataDescription, check_config, check_predictor
from remask.engine.agreement import check_open
from remask.learner.errors import LearnerError
from remask.methods import Method
from remask.papers import published_settings
from remask.planning.defaults import describe
from remask.setting_types import Mask, Name

NAME = "learner"
"""What configs call the stream and the net of a learner, which no benchmark has."""
OWN_MODULE, OWN_BACKBONE, LINEAR = "own module", "own backbone", "linear"
_SMALL = ("mlp", LINEAR)
_HELD_OUT = 10  # one place of the memory in so many
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([kmg]i?|)b", re.IGNORECASE)
_MOST_SAMPLES = 10_000_000
_OWN_WEIGHTS_LR = 0.01  # a net that has learnt before must not be thrown far from where it is
_ADAMW_LR, _ADAMW_OWN_WEIGHTS_LR = 1e-3, 1e-4
_MOST_STEPS = 1200  # of a small net: an epoch of the paper's Split-MNIST


_Side = Annotated[int, Field(ge=1, le=4096)]
_Mean = Annotated[float, Field(allow_inf_nan=False)]
_Deviation = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class LearnerSettings(BaseModel):
    """What a learner was created with. It never changes."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    net: Name
    freeze: bool = False
    memory: Annotated[int, Field(ge=1, le=_MOST_SAMPLES)] | Annotated[str, Field(max_length=40)]
    method: Name
    mask: Mask
    lr: float | None = Field(None, gt=0, allow_inf_nan=False)
    epochs: int | None = Field(None, ge=1, le=100_000)
    batch: int | None = Field(None, ge=1, le=100_000)
    replay_batch: int | None = Field(None, ge=1, le=100_000)
    optimizer: Literal["sgd", "adamw"] = "sgd"
    augment: bool = False
    image_size: tuple[_Side, _Side] | None = None
    normalise: Literal["auto", "none"] | tuple[tuple[_Mean, ...], tuple[_Deviation, ...]] = "auto"
    seed: int = Field(0, ge=0, lt=2**63)
    keep_generations: int = Field(3, ge=0, le=100)

    @property
    def small(self) -> bool:
        """Whether the net is one for which the paper's settings of Split-MNIST are meant."""
        return self.net in _SMALL or self.freeze

    @property
    def has_own_weights(self) -> bool:
        """Whether the net that is trained starts from weights that the user gave."""
        return self.net in (OWN_MODULE, OWN_BACKBONE) and not self.freeze


def places(memory: int | str, sample_bytes: int) -> tuple[int, int]:
    """How many samples the memory holds: those to replay, and those that are held out.

    Raises LearnerError if a size in bytes has no room for any.
    """
    if isinstance(memory, str):
        capacity = min(memory_bytes(memory) // sample_bytes, _MOST_SAMPLES)
        if capacity < 1:
            raise LearnerError(f"memory={memory!r} has no room for one of {sample_bytes} bytes")
    else:
        capacity = memory
    held_out = capacity // _HELD_OUT
    return capacity - held_out, held_out


def memory_bytes(text: str) -> int:
    """Read a size such as "500 MB"; raises LearnerError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise LearnerError(
            f"memory={text!r:.60}: give a number of samples, such as 2000, or a size, such as "
            f'"500 MB"'
        )
    return int(float(match[1]) * _UNITS[match[2].lower()])


def trial_config(settings: LearnerSettings, method: type[Method], buffer: int) -> TrialConfig:
    """The config of a visit: published settings of the same kind of net, unless others are given.

    Raises LearnerError.
    """
    like = "split-mnist" if settings.small else "split-cifar10"
    own = published_settings(like, method.name, buffer)
    usual = own or published_settings(like, "er_ema", buffer)
    assert usual is not None
    weights = dict(method.weights)
    weights.update({n: v for n, v in (own.weights if own else {}).items() if n in weights})
    common = {name: weights.pop(name) for name in COMMON_WEIGHTS if name in weights}
    lr = _OWN_WEIGHTS_LR if settings.has_own_weights else usual.lr
    if settings.optimizer == "adamw":
        lr = _ADAMW_OWN_WEIGHTS_LR if settings.has_own_weights else _ADAMW_LR
    mask, fade = settings.mask, method.usual_fade
    if mask == "auto":
        # The candidates of a visit have masks of their own; this is for a method without a memory.
        mask, fade = method.usual_mask, 0.0
    try:
        return TrialConfig(
            benchmark=NAME,
            method=settings.method,
            mask=mask,
            buffer=buffer if method.uses_buffer() else 0,
            seed=settings.seed,
            net=NAME,
            lr=lr if settings.lr is None else settings.lr,
            batch=settings.batch or usual.batch,
            replay_batch=(
                settings.replay_batch or usual.replay_batch if method.uses_replay_batch() else 0
            ),
            epochs=1,
            weights=weights,
            fade=fade if mask is not None else 0.0,
            memory="balanced" if method.draws else "reservoir",
            **common,
        )
    except ValidationError as error:
        raise LearnerError(describe(error)) from None


def most_epochs(settings: LearnerSettings, config: TrialConfig, samples: int) -> int:
    """How many epochs a visit has at most.

    What the paper uses: for small nets as many steps as its Split-MNIST takes per task, for others
    the 50 epochs of Split-CIFAR-10.
    """
    if settings.epochs is not None:
        return settings.epochs
    if not settings.small:
        return 50
    return max(1, round(_MOST_STEPS * config.batch / samples))


def check_settings(settings: LearnerSettings, method: type[Method]) -> None:
    """Refuse what no visit could be learnt with. Raises LearnerError, MethodError."""
    if isinstance(settings.memory, str):
        memory_bytes(settings.memory)
        buffer = 200
    else:
        buffer, _ = places(settings.memory, 1)
    if not method.class_il:
        raise LearnerError(
            f"{method.title} must be told the task of every input, which a learner is not"
        )
    check_predictor(method)
    data = DataDescription((1,), 1, name=NAME, input_type=torch.float32)
    check_open(method, data)
    check_config(trial_config(settings, method, buffer), method, data)
