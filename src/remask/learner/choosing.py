"""Candidates of a visit: masks that are trained side by side, of which the best is kept.

A saved state is that of one net. A visit with C candidates begins with C copies of it, which share
seed, batches and memory; after the visit one of them goes on. The rule is the engine's, and what
it compares on is the learner's held-out memory and the samples of the visit that are held out.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from remask.config import TrialConfig
from remask.engine import TrialStack
from remask.engine.candidates import candidates_of, fading_name
from remask.engine.choosing import choice
from remask.learner.accounts import Choice
from remask.learner.settings import LearnerSettings
from remask.methods import Method
from remask.setting_types import write_mask

_SHARED = ("stream/counts", "stream/steps")


def candidate_configs(
    settings: LearnerSettings, config: TrialConfig, method: type[Method]
) -> list[TrialConfig]:
    """What a visit trains side by side; the first is the default."""
    if settings.mask != "auto" or method.unmaskable or not method.uses_buffer():
        return [config]
    return [
        candidate.config(config, config.buffer)
        for candidate in candidates_of(method, config.buffer)
    ]


def copies(state: Mapping[str, Tensor], count: int) -> dict[str, Tensor]:
    """The state of so many nets, each as the one that was saved."""
    return {
        name: tensor if name in _SHARED else tensor.repeat(count, *[1] * (tensor.ndim - 1))
        for name, tensor in state.items()
    }


def one_of(state: Mapping[str, Tensor], number: int, count: int) -> dict[str, Tensor]:
    """The state of one net among so many."""
    return {
        name: tensor if name in _SHARED else tensor.chunk(count)[number]
        for name, tensor in state.items()
    }


def choose(
    stack: TrialStack, right: Tensor, truth: Tensor, settings: LearnerSettings
) -> tuple[int, Choice]:
    """Which candidate goes on, by whether each was right [C, n] about held-out samples, and why."""
    configs = stack.configs
    if len(configs) == 1:
        return 0, _account(configs[0], _why_alone(settings, configs[0]))
    usable = [result.diverged_at is None for result in stack.results()]
    if not len(truth):
        return 0, _account(configs[0], "the default: there are no held-out samples to compare on")
    chosen, scores, errors = choice(right.numpy(), truth.numpy(), torch.tensor(usable).numpy())
    found = ", ".join(
        f"{_shown(config)} {score:.1f}" for config, score in zip(configs, scores, strict=True)
    )
    compared = f"percent right of {len(truth)} held-out samples: {found}"
    if not usable[0]:
        why = f"the default diverged; {compared}"
    elif chosen:
        ahead = scores[chosen] - scores[0]
        why = f"ahead of the default by {ahead:.1f} ±{errors[chosen]:.1f} points; {compared}"
    else:
        why = f"the default, and none is ahead of it by more than chance explains; {compared}"
    return chosen, _account(configs[chosen], why)


def _why_alone(settings: LearnerSettings, config: TrialConfig) -> str:
    if settings.mask != "auto" or not config.buffer:
        return "as the learner was created"
    return "the default: with so small a memory, comparing masks costs more than it wins"


def _account(config: TrialConfig, why: str) -> Choice:
    return Choice(
        mask=_mask(config), fade=config.fade, fade_power=config.fade_power, lr=config.lr, why=why
    )


def _mask(config: TrialConfig) -> str:
    written = write_mask(config.mask)
    return "none" if written is None else written if isinstance(written, str) else f"{written:g}"


def _shown(config: TrialConfig) -> str:
    return f"{_mask(config)} fading {fading_name(config)}" if config.fade else _mask(config)
