"""The settings of a learner, and the trial config that its engine gets from them."""

import math
import re
from typing import Annotated, Literal, get_args

import torch
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from remask.config import COMMON_WEIGHTS, TrialConfig
from remask.engine import DataDescription
from remask.engine.saved_nets import check_predictor
from remask.engine.validation import check_config, check_open
from remask.learner.errors import LearnerError
from remask.methods import Method
from remask.methods.closed_form import HeadName
from remask.papers.published import published_settings
from remask.setting_types import Mask, Name, describe_errors

NAME = "learner"
"""The benchmark and the net of a learner's trial configs."""
AUTO, NONE = "auto", "none"
OWN_MODULE, LINEAR = "own module", "linear"
CLOSED_FORM: tuple[HeadName, ...] = get_args(HeadName)
"""Methods that compute a linear head from sums over samples, without training."""
AUTO_HEADS: tuple[HeadName, ...] = ("ridge", "slda")
"""What `method="auto"` compares with a trained head; the first is the default."""
AUTO_METHOD = "er_ema"
"""What `method="auto"` trains a net with."""
SMALL_NETS = ("mlp", LINEAR)
_HELD_OUT = 10  # a tenth of the memory
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}
_SIZE = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([kmg]i?|)b\s*", re.IGNORECASE)
_MOST_SAMPLES = 10_000_000
_OWN_WEIGHTS_LR = 0.01  # pretrained weights must not move far
_ADAMW_LR, _ADAMW_OWN_WEIGHTS_LR = 1e-3, 1e-4
_CONV = "conv"
_CONV_LR, _CONV_BATCH, _CONV_EPOCHS = 0.1, 16, 20
_USUAL_EPOCHS = 50  # of Split-CIFAR-10 in the paper
_MOST_STEPS = 1200  # of a small net: an epoch of the paper's Split-MNIST

_Side = Annotated[int, Field(ge=1, le=4096)]
_Channels = tuple[float, ...]


def _check_memory(value: object) -> object:
    if type(value) is int and 0 <= value <= _MOST_SAMPLES:
        return value
    if isinstance(value, str) and _SIZE.fullmatch(value):
        return value
    raise ValueError(f'give a number of samples, 0 to {_MOST_SAMPLES}, or a size such as "500 MB"')


def _check_normalise(value: object) -> object:
    if isinstance(value, str) and value in (AUTO, NONE):
        return value
    try:
        mean, std = (tuple(map(float, each)) for each in value)  # type: ignore[attr-defined]
    except (TypeError, ValueError, OverflowError):
        mean, std = (), ()
    if not mean or not all(map(math.isfinite, (*mean, *std))) or min(std, default=0.0) <= 0:
        raise ValueError('give "auto", "none", or (means, deviations above 0), one per channel')
    return mean, std


class LearnerSettings(BaseModel):
    """What a learner was created with. It never changes."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    encoder: Name = AUTO
    net: Name = AUTO
    memory: Annotated[int | str, BeforeValidator(_check_memory)]
    method: Name = AUTO
    mask: Mask
    lr: float | None = Field(None, gt=0, allow_inf_nan=False)
    epochs: int | None = Field(None, ge=1, le=100_000)
    batch: int | None = Field(None, ge=1, le=100_000)
    replay_batch: int | None = Field(None, ge=1, le=100_000)
    optimizer: Literal["sgd", "adamw"] = "sgd"
    augment: bool | None = None
    image_size: tuple[_Side, _Side] | None = None
    normalise: Annotated[
        Literal["auto", "none"] | tuple[_Channels, _Channels], BeforeValidator(_check_normalise)
    ] = "auto"
    seed: int = Field(0, ge=0, lt=2**63)
    keep_generations: int = Field(3, ge=0, le=100)
    statistics_bytes: int = Field(2 * 10**9, ge=0, le=1 << 50)

    def augments(self, net: str) -> bool:
        """Whether images are cropped and mirrored at random; the default for the net `conv`."""
        return _is_conv(net) if self.augment is None else self.augment

    @property
    def has_own_weights(self) -> bool:
        """Whether the net starts from weights that the user gave."""
        return self.net == OWN_MODULE

    @property
    def heads(self) -> tuple[HeadName, ...]:
        """The heads in closed form to compare if there are features; the first is preferred."""
        if self.method == AUTO:
            # Without a memory, samples to compare on are drawn from Gaussians, which favour slda.
            return AUTO_HEADS if self.memory != 0 else AUTO_HEADS[:1]
        return tuple(name for name in CLOSED_FORM if name == self.method)

    def trains(self, *, features: bool) -> bool:
        """Whether a net is trained, for a learner with or without features."""
        if self.method == AUTO:
            return not features or self.memory != 0
        return self.method not in CLOSED_FORM

    def places(self, sample_bytes: int) -> tuple[int, int]:
        """Return how many samples are replayed, and how many are held out.

        Raises LearnerError if a memory in bytes has no room for a sample.
        """
        if isinstance(self.memory, int):
            capacity = self.memory
        else:
            match = _SIZE.fullmatch(self.memory)
            assert match is not None
            size = int(float(match[1]) * _UNITS[match[2].lower()])
            capacity = min(size // sample_bytes, _MOST_SAMPLES)
            if capacity < 1:
                raise LearnerError(
                    f"memory={self.memory!r} is too small for a sample of {sample_bytes} bytes"
                )
        return capacity - capacity // _HELD_OUT, capacity // _HELD_OUT


def trial_config(
    settings: LearnerSettings, method: type[Method], buffer: int, net: str, samples: int
) -> TrialConfig:
    """Return the config of a visit of `samples` samples. Raises LearnerError.

    What the settings leave open is as published for the same kind of net. `epochs` is the maximum:
    for small nets as many steps as Split-MNIST takes per task.
    """
    like = "split-mnist" if net in SMALL_NETS else "split-cifar10"
    own = published_settings(like, method.name, buffer)
    usual = own or published_settings(like, "er_ema", buffer)
    assert usual is not None
    weights = dict(method.weights)
    weights.update({n: v for n, v in (own.weights if own else {}).items() if n in weights})
    common = {name: weights.pop(name) for name in COMMON_WEIGHTS if name in weights}
    lr, batch, replay_batch, epochs = usual.lr, usual.batch, usual.replay_batch, _USUAL_EPOCHS
    if _is_conv(net):
        lr, batch, replay_batch, epochs = _CONV_LR, _CONV_BATCH, _CONV_BATCH, _CONV_EPOCHS
    if settings.has_own_weights:
        lr = _OWN_WEIGHTS_LR
    if settings.optimizer == "adamw":
        lr = _ADAMW_OWN_WEIGHTS_LR if settings.has_own_weights else _ADAMW_LR
    batch, replay_batch = settings.batch or batch, settings.replay_batch or replay_batch
    if net in SMALL_NETS:
        epochs = max(1, round(_MOST_STEPS * batch / samples))
    mask, fade = settings.mask, method.usual_fade
    if mask == AUTO:  # the candidates have masks of their own; this is for a method without memory
        mask, fade = method.usual_mask, 0.0
    try:
        return TrialConfig(
            benchmark=NAME,
            method=method.name if settings.method == AUTO else settings.method,
            mask=mask,
            buffer=buffer if method.uses_buffer() else 0,
            seed=settings.seed,
            net=NAME,
            lr=lr if settings.lr is None else settings.lr,
            batch=batch,
            replay_batch=replay_batch if method.uses_replay_batch() else 0,
            epochs=settings.epochs or epochs,
            weights=weights,
            fade=fade if mask is not None else 0.0,
            memory="balanced" if method.draws else "reservoir",
            **common,
        )
    except ValidationError as error:
        raise LearnerError(describe_errors(error)) from None


def check_settings(settings: LearnerSettings, method: type[Method] | None) -> None:
    """Raise LearnerError or MethodError for settings that no visit can be learnt with.

    `method` trains the net; None if no net is trained.
    """
    if settings.memory == 0 and settings.method not in (AUTO, *CLOSED_FORM):
        raise LearnerError(
            f"memory=0 keeps no samples to replay, which {settings.method} needs. Use "
            f"method='auto', 'ridge', 'slda' or 'ncm', or memory=1 or more."
        )
    if settings.method in CLOSED_FORM and settings.net not in (AUTO, LINEAR):
        raise LearnerError(
            f"method={settings.method!r} computes a linear head of features and trains no net: "
            f"leave out net={settings.net!r}"
        )
    if method is None or settings.memory == 0:
        return
    if not method.class_il:
        raise LearnerError(
            f"{method.title} needs the task of every input, which a learner does not have"
        )
    check_predictor(method)
    data = DataDescription((1,), 1, name=NAME, input_type=torch.float32)
    check_open(method, data)
    buffer = settings.places(1)[0] if isinstance(settings.memory, int) else 200
    check_config(trial_config(settings, method, buffer, settings.net, 10_000), method, data)


def _is_conv(net: str) -> bool:
    return net.partition(":")[0] == _CONV
