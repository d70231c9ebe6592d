"""From the settings of a learner to the engine of a visit, and the state of one net among several.

The saved state is that of one net. A visit with C candidates starts with C copies of it, which
share seed, batches and memory; one of them is kept.
"""

from collections.abc import Mapping, Sequence

import torch
from pydantic import ValidationError
from torch import Tensor

from remask.config import COMMON_WEIGHTS, TrialConfig
from remask.engine import DataDescription, TrialStack
from remask.engine.choosing import Candidate as Masking
from remask.engine.choosing import candidates_of
from remask.engine.saved_nets import check_predictor
from remask.engine.validation import check_config, check_open
from remask.learner.folder import Tensors
from remask.learner.manifest import Manifest
from remask.learner.model import Model
from remask.learner.settings import (
    AUTO,
    CLOSED_FORM,
    LINEAR,
    LearnerError,
    LearnerSettings,
)
from remask.memory import StoredRows
from remask.methods import Method
from remask.papers.published import published_settings
from remask.setting_types import describe_errors

NAME = "learner"
"""The benchmark and the net of a learner's trial configs."""
SMALL_NETS = ("mlp", LINEAR)
_OWN_WEIGHTS_LR = 0.01  # pretrained weights must not move far
_ADAMW_LR, _ADAMW_OWN_WEIGHTS_LR = 1e-3, 1e-4
_CONV = "conv"
_CONV_LR, _CONV_BATCH, _CONV_EPOCHS = 0.1, 16, 20
_USUAL_EPOCHS = 50  # of Split-CIFAR-10 in the paper
_MOST_STEPS = 1200  # of a small net: an epoch of the paper's Split-MNIST
_SHARED = ("stream/counts", "stream/steps")
_FACTOR = 3.0  # between neighbouring learning rates
_FURTHEST = 30.0  # from the usual learning rate
_CROP_SHARE = 8  # images are cropped from a frame of an eighth of their side


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


def _is_conv(net: str) -> bool:
    return net.partition(":")[0] == _CONV


def candidate_configs(
    settings: LearnerSettings,
    config: TrialConfig,
    method: type[Method],
    *,
    remembered: float | None,
    seen: int,
) -> list[TrialConfig]:
    """Return the configs that a visit trains side by side; the first is the default.

    `config` has the usual learning rate, `remembered` is that of the visit before, and `seen` the
    number of samples so far. In a first visit all masks are equivalent, so only learning rates
    differ. Later, rates are compared with the default mask, and masks at the rate of the visit
    before.
    """
    usual, now = config.lr, remembered or config.lr
    rates = [settings.lr or now]
    if settings.lr is None:
        near = (now, now / _FACTOR, now * _FACTOR)
        rates = [rate for rate in near if usual / _FURTHEST <= rate <= usual * _FURTHEST]
    masks = [config]
    if settings.mask == AUTO and not method.unmaskable and method.uses_buffer():
        chosen: dict[Masking, TrialConfig] = {}
        for masking in candidates_of(config.buffer):
            faded = masking.fade * config.buffer >= seen  # it masks nothing from the first step on
            key = Masking(None) if faded else masking
            chosen.setdefault(key, masking.config(config, config.buffer))
        masks = list(chosen.values())
    others = masks[1:] if remembered is not None else []
    return [
        *(masks[0].model_copy(update={"lr": rate}) for rate in rates),
        *(mask.model_copy(update={"lr": rates[0]}) for mask in others),
    ]


def make_stack(
    manifest: Manifest,
    model: Model,
    samples: int,
    *,
    seen: int,
    share: float = 1.0,
    only_default: bool = False,
    earlier_samples: Sequence[StoredRows] = (),
) -> TrialStack:
    """Make the engine for a visit of `samples` samples, before it has learnt anything.

    Learning rates are multiplied by `share`. With `only_default`, there is one candidate.
    """
    data, settings, method = manifest.data, manifest.settings, model.method
    assert data is not None
    assert method is not None
    replayed, _ = settings.places(data.kept.sample_bytes)
    config = trial_config(settings, method, replayed, data.net, samples)
    config = config.model_copy(update={"lr": config.lr * share})
    if settings.lr is not None:
        settings = settings.model_copy(update={"lr": config.lr})
    remembered = None if manifest.lr is None else manifest.lr * share
    configs = candidate_configs(settings, config, method, remembered=remembered, seen=seen)
    kept, how = data.kept, data.kept_seen
    augment = _is_conv(data.net) if settings.augment is None else settings.augment
    augment = augment and kept.is_image
    description = DataDescription(
        input_shape=kept.shape,
        num_classes=manifest.outputs,
        name=NAME,
        input_type=kept.tensor_type,
        scale=how.scale,
        mean=how.mean,
        std=how.std,
        crop_padding=min(kept.shape[1:]) // _CROP_SHARE if augment else 0,
        flip=augment,
    )
    return TrialStack(
        configs[:1] if only_default else configs,
        description,
        method=method,
        build_net=model.net_builder(data.net),
        device=model.device,
        earlier_samples=earlier_samples if method.draws else None,
        optimizer=settings.optimizer,
    )


def copies(state: Mapping[str, Tensor], count: int) -> Tensors:
    """Return the state of `count` nets, all equal to a saved one."""
    return {
        name: tensor if name in _SHARED else tensor.repeat(count, *[1] * (tensor.ndim - 1))
        for name, tensor in state.items()
    }


def one_of(state: Mapping[str, Tensor], number: int, count: int) -> Tensors:
    """Return the state of one net among `count`."""
    return {
        name: tensor if name in _SHARED else tensor.chunk(count)[number]
        for name, tensor in state.items()
    }
