"""The candidates of a visit, masks, learning rates and heads, and the choice among them.

They are compared on held-out samples by the rule of the engine: the default is kept unless another
one is significantly better. The saved state is that of one net. A visit with C candidates starts
with C copies of it, which share seed, batches and memory; one of them is kept.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor

from remask.config import COMMON_WEIGHTS, TrialConfig
from remask.engine import DataDescription, TrialStack
from remask.engine.choosing import Candidate as Masking
from remask.engine.choosing import candidates_of, fading_name
from remask.engine.choosing import choice as choose_candidate
from remask.engine.saved_nets import check_predictor
from remask.engine.validation import check_config, check_open
from remask.errors import describe_errors
from remask.learner.folder import Tensors
from remask.learner.manifest import Manifest
from remask.learner.model import Model
from remask.learner.results import Choice
from remask.learner.samples import HeldOut, Statistics
from remask.learner.scoring import score_held_out, stack_log_probabilities
from remask.learner.settings import AUTO, CLOSED_FORM, LINEAR, LearnerError, LearnerSettings
from remask.methods import Method
from remask.papers.published import published_settings

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
    if is_conv(net):
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


def is_conv(net: str) -> bool:
    """Whether a net is the small convolutional one."""
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


@dataclass(frozen=True, eq=False)
class Candidate:
    """A state that the learner could have after a change."""

    name: str
    manifest: Manifest
    tensors: Tensors
    """Of the head, or of the net and its training."""


@dataclass(frozen=True, eq=False)
class Chosen:
    """The best candidate."""

    candidate: Candidate
    why: str
    scores: Tensor
    """[n, C] of held-out samples of known classes."""
    truth: Tensor
    """Their true columns [n]."""


def choose(
    manifest: Manifest,
    statistics: Statistics | None,
    nets: Sequence[Candidate],
    held: HeldOut,
    model: Model,
) -> Chosen:
    """Choose by accuracy on held-out samples among the heads in closed form and trained nets."""
    heads = () if statistics is None else manifest.settings.heads
    candidates = [
        Candidate(name, manifest.model_copy(update={"head": name}), statistics.head(name))
        for name in heads
        if statistics is not None
    ]
    candidates += nets
    scores = [score_held_out(held, each.manifest, each.tensors, model) for each in candidates]
    right = torch.stack([rated.argmax(1) == truth for rated, truth in scores])
    names = [each.name for each in candidates]
    best, why = _compare(names, right, scores[0][1], [True] * len(candidates))
    return Chosen(candidates[best], why, *scores[best])


def choose_trial(
    stack: TrialStack, held: HeldOut, manifest: Manifest, model: Model
) -> tuple[Tensors, Choice]:
    """Choose a trial of a stack; return its state and its settings."""
    truth = held.truth(manifest)
    right = stack_log_probabilities(stack, held, manifest, model.device).argmax(-1) == truth
    configs = stack.configs
    usable = [diverged_at is None for diverged_at in stack.diverged_at]
    chosen, why = _compare([_shown(config, configs) for config in configs], right, truth, usable)
    config = configs[chosen]
    if not why:
        why = "the default; there is nothing to compare it with"
        if model.settings.mask != AUTO or not config.buffer:
            why = "as the learner was created"
    choice = Choice(
        mask=_mask(config),
        fade=config.fade,
        fade_power=config.fade_power,
        lr=config.lr,
        why=why,
    )
    return one_of(stack.state(), chosen, len(configs)), choice


def _compare(
    names: Sequence[str], right: Tensor, truth: Tensor, usable: Sequence[bool]
) -> tuple[int, str]:
    """Choose by whether each candidate was right [C, n] about held-out samples; return why."""
    if len(names) == 1:
        return 0, ""
    if not len(truth):
        first = next((n for n, own in enumerate(usable) if own), 0)
        return first, "the default; there are no held-out samples to compare on"
    chosen, scores, errors = choose_candidate(right.numpy(), truth.numpy(), np.array(usable))
    found = ", ".join(
        f"{name} {score:.1f} %" if own else f"{name} diverged"
        for name, score, own in zip(names, scores, usable, strict=True)
    )
    why = "the default; no other is significantly better"
    if not usable[0]:
        why = "the default diverged"
    elif chosen:
        ahead = scores[chosen] - scores[0]
        why = f"{ahead:.1f} ±{errors[chosen]:.1f} points better than the default"
    return chosen, f"{why} (accuracy on {len(truth)} held-out samples: {found})"


def _shown(config: TrialConfig, configs: Sequence[TrialConfig]) -> str:
    mask = f"m = {_mask(config)}"
    if config.fade:
        mask += f" fading {fading_name(config)}"
    if len({own.lr for own in configs}) == 1:
        return mask
    alike = len({(own.mask, own.fade) for own in configs}) == 1
    return f"lr {config.lr:g}" if alike else f"{mask} lr {config.lr:g}"


def _mask(config: TrialConfig) -> str:
    return "none" if config.mask is None else f"{config.mask:g}"


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
