"""Candidates of a visit: masks, learning rates and heads, compared on held-out samples.

A saved state is that of one net. A visit with C candidates begins with C copies of it, which share
seed, batches and memory. After the visit one of them goes on. The rule is the engine's: the default
unless another candidate is significantly better.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from remask.config import TrialConfig
from remask.engine import TrialStack
from remask.engine.candidates import Candidate, candidates_of, fading_name
from remask.engine.choosing import choice
from remask.learner.accounts import Choice
from remask.learner.settings import AUTO, LearnerSettings
from remask.methods import Method
from remask.setting_types import write_mask

_SHARED = ("stream/counts", "stream/steps")
_FACTOR = 3.0
"""Between neighbouring learning rates."""
_FURTHEST = 30.0
"""A learning rate stays within this factor of the usual one."""


def candidate_configs(
    settings: LearnerSettings,
    config: TrialConfig,
    method: type[Method],
    *,
    remembered: float | None,
    samples: int,
) -> list[TrialConfig]:
    """What a visit trains side by side; the first is the default.

    `config` has the usual learning rate, `remembered` is that of the visit before. `samples` is how
    many have been seen with this visit. In a first visit every mask does the same, so only learning
    rates differ. Later, the rates are compared at the default mask, and masks at the rate of the
    visit before.
    """
    usual, now = config.lr, remembered or config.lr
    masks = _masks(settings, config, method, samples)
    if settings.lr is not None:
        rates = [settings.lr]
    else:
        near = (now, now / _FACTOR, now * _FACTOR)
        rates = [rate for rate in near if usual / _FURTHEST <= rate <= usual * _FURTHEST]
    first = remembered is None
    return [
        *(masks[0].model_copy(update={"lr": rate}) for rate in rates),
        *(mask.model_copy(update={"lr": rates[0]}) for mask in masks[1:] if not first),
    ]


def _masks(
    settings: LearnerSettings, config: TrialConfig, method: type[Method], samples: int
) -> list[TrialConfig]:
    if settings.mask != AUTO or method.unmaskable or not method.uses_buffer():
        return [config]
    chosen: dict[Candidate, TrialConfig] = {}
    for candidate in candidates_of(method, config.buffer):
        # A mask that has faded before the first step masks nothing.
        faded = candidate.fade * config.buffer >= samples
        does = Candidate(None) if faded else candidate
        chosen.setdefault(does, candidate.config(config, config.buffer))
    return list(chosen.values())


def copies(state: Mapping[str, Tensor], count: int) -> dict[str, Tensor]:
    """The state of `count` nets, each as the one that was saved."""
    return {
        name: tensor if name in _SHARED else tensor.repeat(count, *[1] * (tensor.ndim - 1))
        for name, tensor in state.items()
    }


def one_of(state: Mapping[str, Tensor], number: int, count: int) -> dict[str, Tensor]:
    """The state of one net among `count`."""
    return {
        name: tensor if name in _SHARED else tensor.chunk(count)[number]
        for name, tensor in state.items()
    }


@dataclass(frozen=True)
class Compared:
    """Which of several candidates was chosen, and why."""

    chosen: int
    why: str


def compare(names: Sequence[str], right: Tensor, truth: Tensor, usable: Sequence[bool]) -> Compared:
    """Choose a candidate by whether each was right [C, n] about held-out samples [n]."""
    if len(names) == 1:
        return Compared(0, "")
    if not len(truth):
        first = next((n for n, own in enumerate(usable) if own), 0)
        return Compared(first, "the default; there are no held-out samples to compare on")
    chosen, scores, errors = choice(right.numpy(), truth.numpy(), np.array(usable))
    found = ", ".join(
        f"{name} {score:.1f} %" if own else f"{name} diverged"
        for name, score, own in zip(names, scores, usable, strict=True)
    )
    compared = f"accuracy on {len(truth)} held-out samples: {found}"
    if not usable[0]:
        why = f"the default diverged ({compared})"
    elif chosen:
        ahead = scores[chosen] - scores[0]
        why = f"{ahead:.1f} ±{errors[chosen]:.1f} points better than the default ({compared})"
    else:
        why = f"the default; no other is significantly better ({compared})"
    return Compared(chosen, why)


def compare_trials(
    stack: TrialStack, right: Tensor, truth: Tensor, settings: LearnerSettings
) -> tuple[int, Choice]:
    """Which trial of a stack goes on, and the settings that it was trained with."""
    configs = stack.configs
    usable = [diverged_at is None for diverged_at in stack.diverged_at]
    found = compare([_shown(config, configs) for config in configs], right, truth, usable)
    config = configs[found.chosen]
    return found.chosen, Choice(
        head="net",
        mask=_mask(config),
        fade=config.fade,
        fade_power=config.fade_power,
        lr=config.lr,
        why=found.why or _why_alone(settings, config),
    )


def _why_alone(settings: LearnerSettings, config: TrialConfig) -> str:
    if settings.mask != AUTO or not config.buffer:
        return "as the learner was created"
    return "the default; there is nothing to compare it with"


def _mask(config: TrialConfig) -> str:
    written = write_mask(config.mask)
    return "none" if written is None else written if isinstance(written, str) else f"{written:g}"


def _shown(config: TrialConfig, configs: Sequence[TrialConfig]) -> str:
    mask = f"{_mask(config)} fading {fading_name(config)}" if config.fade else _mask(config)
    if len({own.lr for own in configs}) == 1:
        return f"m = {mask}"
    alike = len({(own.mask, own.fade) for own in configs}) == 1
    return f"lr {config.lr:g}" if alike else f"m = {mask} lr {config.lr:g}"
