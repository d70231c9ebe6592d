"""What held-out samples decide: which candidate is kept, its temperature, and if a visit is valid.

Candidates are compared by the rule of the engine: the default is kept unless another one is
significantly better. In the other measurements every class weighs the same.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from remask import metrics
from remask.config import TrialConfig
from remask.engine import TrialStack
from remask.engine.choosing import choice as choose_candidate
from remask.engine.choosing import fading_name
from remask.learner.folder import Tensors
from remask.learner.manifest import Manifest
from remask.learner.model import Model
from remask.learner.results import Calibration, Choice
from remask.learner.samples import HeldOut, Statistics
from remask.learner.scoring import Rated, class_weights, rate, stack_log_probabilities
from remask.learner.settings import AUTO, VisitRejectedError
from remask.learner.training import one_of

_Z = 1.64  # guesses pass in one of 20 visits
_LEAST = 20  # held-out samples; fewer decide nothing
_LEAST_SAMPLES, _MOST_SCORES = 500, 500_000  # that a temperature is fitted to
_LOWEST, _HIGHEST = 0.05, 20.0  # temperatures
_FOLDS = 5


@dataclass(frozen=True, eq=False)
class Candidate:
    """A state that the learner could have after a change."""

    name: str
    manifest: Manifest
    tensors: Tensors
    """Of the head, or of the net and its training."""


def choose(
    manifest: Manifest,
    statistics: Statistics | None,
    nets: Sequence[Candidate],
    held: HeldOut,
    model: Model,
) -> tuple[Candidate, str, Rated]:
    """Choose among the heads in closed form and trained nets; return why, and its scores."""
    candidates = list(nets)
    if statistics is not None:
        candidates[:0] = [
            Candidate(name, manifest.changed(head=name), statistics.head(name))
            for name in manifest.settings.heads
        ]
    rated = [rate(held, each.manifest, each.tensors, model) for each in candidates]
    right = torch.stack([each.right for each in rated])
    names = [each.name for each in candidates]
    best, why = _compare(names, right, rated[0].truth, [True] * len(candidates))
    return candidates[best], why, rated[best]


def choose_trial(
    stack: TrialStack, held: HeldOut, manifest: Manifest, model: Model
) -> tuple[Tensors, Choice]:
    """Choose a trial of a stack; return its state and its settings."""
    truth, configs = held.truth(manifest), stack.configs
    right = stack_log_probabilities(stack, held, manifest, model.device).argmax(-1) == truth
    usable = [diverged_at is None for diverged_at in stack.diverged_at]
    chosen, why = _compare([_shown(each, configs) for each in configs], right, truth, usable)
    config = configs[chosen]
    if not why:
        why = "the default; there is nothing to compare it with"
        if model.settings.mask != AUTO or not config.buffer:
            why = "as the learner was created"
    found = {"fade": config.fade, "fade_power": config.fade_power, "lr": config.lr}
    choice = Choice(mask=_mask(config), why=why, **found)
    return one_of(stack.state(), chosen, len(configs)), choice


def _compare(
    names: Sequence[str], right: Tensor, truth: Tensor, usable: Sequence[bool]
) -> tuple[int, str]:
    """Choose by whether each candidate was right [C, n] about held-out samples; return why."""
    if len(names) == 1:
        return 0, ""
    if not len(truth):
        first = usable.index(True) if any(usable) else 0
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
    """Return what distinguishes a config from the others: its mask, its learning rate, or both."""
    mask = f"m = {_mask(config)}"
    if config.fade:
        mask += f" fading {fading_name(config)}"
    if len({own.lr for own in configs}) == 1:
        return mask
    alike = len({(own.mask, own.fade) for own in configs}) == 1
    return f"lr {config.lr:g}" if alike else f"{mask} lr {config.lr:g}"


def _mask(config: TrialConfig) -> str:
    return "none" if config.mask is None else f"{config.mask:g}"


def per_class(rated: Rated, names: Sequence[str]) -> tuple[dict[str, float], dict[str, int]]:
    """Return the accuracy in percent and the number of samples of each class that has any."""
    counts = torch.bincount(rated.truth, minlength=len(names)).tolist()
    right = torch.bincount(rated.truth, weights=rated.right.double(), minlength=len(names))
    found = list(zip(names, right.tolist(), counts, strict=True))
    return {n: 100 * r / c for n, r, c in found if c}, {n: c for n, _, c in found if c}


def calibrate(rated: Rated) -> Calibration | None:
    """Fit a temperature to held-out samples; None if there is nothing to fit to.

    It minimises the cross-entropy. It stays at 1 unless it also helps in cross-validation: with
    few samples, a fit can do more harm than good.
    """
    scores, truth = rated
    if not len(truth) or scores.shape[1] < 2:
        return None
    most = max(_LEAST_SAMPLES, _MOST_SCORES // scores.shape[1])
    if len(truth) > most:  # more take time and change nothing
        some = torch.linspace(0, len(truth) - 1, most).long()
        scores, truth = scores[some], truth[some]
    scores, weights = scores.double(), class_weights(truth)
    temperature = _best_temperature(scores, truth) if _scaling_helps(scores, truth) else 1.0
    return Calibration(
        temperature=temperature,
        ece_before=calibration_error(scores, truth, weights),
        ece_after=calibration_error(scores / temperature, truth, weights),
        samples=len(truth),
    )


def calibration_error(scores: Tensor, truth: Tensor, weights: Tensor | None = None) -> float:
    """Compute the expected calibration error of scores [n, C] for true columns [n], in percent."""
    confident, columns = scores.double().softmax(dim=1).max(dim=1)
    return metrics.expected_calibration_error(confident, columns == truth, weights)


def _scaling_helps(scores: Tensor, truth: Tensor) -> bool:
    """Whether temperatures that are fitted without a fold suit the samples of that fold."""
    fold_of = torch.empty_like(truth)
    fold_of[truth.argsort(stable=True)] = torch.arange(len(truth)) % _FOLDS  # spread each class
    gain, weights = 0.0, class_weights(truth)
    for fold in range(min(_FOLDS, len(truth))):
        own = fold_of == fold
        if own.all():
            return False
        temperature = _best_temperature(scores[~own], truth[~own])
        fitted = _likelihood(scores[own] / temperature, truth[own], weights[own])
        gain += fitted - _likelihood(scores[own], truth[own], weights[own])
    return gain > 0


def _best_temperature(scores: Tensor, truth: Tensor) -> float:
    """Return the temperature of least cross-entropy, by golden section of its logarithm.

    The logarithm has a standard normal prior: otherwise a few samples that are all predicted
    correctly would make the learner certain of everything.
    """
    weights = class_weights(truth)

    def loss(logarithm: float) -> float:
        likelihood = _likelihood(scores / math.exp(logarithm), truth, weights)
        return logarithm**2 / (2 * len(truth)) - likelihood

    low, high = math.log(_LOWEST), math.log(_HIGHEST)
    ratio = (5**0.5 - 1) / 2
    for _ in range(40):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if loss(left) <= loss(right):
            high = right
        else:
            low = left
    return math.exp((low + high) / 2)


def _likelihood(scores: Tensor, truth: Tensor, weights: Tensor) -> float:
    """Return the weighted sum of the log-probabilities of the truth."""
    logs = torch.log_softmax(scores, dim=1).gather(1, truth.unsqueeze(1)).squeeze(1)
    return float((weights * logs).sum())


def check_chance(name: str, rated: Rated, advice: str) -> None:
    """Raise VisitRejectedError if the accuracy on held-out samples is not above guessing.

    The mean accuracy over classes must exceed 1 / C by 1.64 standard deviations of guessing.
    Nothing is raised with fewer than 20 samples (those of larger classes count less), or if that is
    more than half of the way to 100 %.
    """
    classes, weights = rated.scores.shape[1], class_weights(rated.truth)
    guess, accuracy = 1 / classes, float((weights * rated.right).sum())
    noise = _Z * math.sqrt(guess * (1 - guess) * float(weights.square().sum()))
    few = classes < 2 or _effective(rated.truth) < _LEAST
    if few or noise > (1 - guess) / 2 or accuracy > guess + noise:
        return
    raise VisitRejectedError(
        f"{name} was not committed: {100 * accuracy:.1f} % of {len(rated.truth)} held-out samples "
        f"are right, and guessing among {classes} classes gives {100 * guess:.1f} "
        f"±{100 * noise:.1f} %. The learner is as it was. {advice}"
    )


def check_drop(
    name: str, before: Rated, after: Rated, old: Sequence[int], max_drop: float, advice: str
) -> None:
    """Raise VisitRejectedError if a visit costs earlier classes more than `max_drop` points.

    `before` and `after` are by the learner without and with the visit. `old` are the columns of
    `after` that `before` has, in their order, and the samples of `before` are the first of `after`
    among those of old classes.

    The cost is the sum of two numbers, averaged over earlier classes. First, the points lost on
    their samples among earlier classes alone. Second, the share of their samples that are predicted
    as a new class, minus the share of new samples that are predicted as an earlier one: mutual
    confusion costs nothing. The cost must exceed `max_drop` by 1.64 standard deviations. Nothing is
    raised with fewer than 20 samples of earlier classes.
    """
    if _effective(before.truth) < _LEAST:
        return
    columns, (scores, truth) = torch.tensor(list(old)), after
    is_old = torch.isin(truth, columns)
    position = torch.full((scores.shape[1],), -1)
    position[columns] = torch.arange(len(columns))
    own, labels = scores[is_old], position[truth[is_old]]
    is_right = own[:, columns].argmax(1) == labels
    taken = ~torch.isin(own.argmax(1), columns)
    weights = class_weights(labels)
    cost = weights * (before.right.double() - is_right.double() + taken.double())
    lost, variance = float(cost.sum()), float(cost.square().sum())
    new, new_truth = scores[~is_old], truth[~is_old]
    if len(new):
        back = class_weights(new_truth) * torch.isin(new.argmax(1), columns)
        lost -= min(float(back.sum()), float((weights * taken).sum()))
        variance += float(back.square().sum())
    drop, noise = 100 * lost, 100 * _Z * math.sqrt(variance)
    if drop - noise > max_drop:
        raise VisitRejectedError(
            f"{name} was not committed: it costs earlier classes {drop:.0f} ±{noise:.0f} points on "
            f"{len(labels)} held-out samples, and at most {max_drop:g} are allowed. The learner is "
            f"as it was. {advice}"
        )


def _effective(truth: Tensor) -> float:
    """Return the number of samples, where those of larger classes count less."""
    return 1 / float(class_weights(truth).square().sum()) if len(truth) else 0.0
