"""Calibration on held-out samples: temperature, calibration error, and when to abstain."""

import math

import torch
from torch import Tensor

from remask import metrics
from remask.learner.accounts import Calibration
from remask.learner.results import Abstention

_LEAST_SAMPLES, _MOST_SCORES = 500, 500_000
_LOWEST, _HIGHEST = 0.05, 20.0
_PARTS = 5  # of the held-out samples, each of which tests what the others say


def calibrate(scores: Tensor, truth: Tensor) -> Calibration | None:
    """Fit a temperature to scores [n, C] and true columns [n]; None if there is nothing to fit to.

    Every class weighs the same, however many of its samples are held out. The temperature makes the
    truth most likely. It stays at 1 unless temperatures fitted to some of the samples make the
    others more likely, too: with few samples, a fit can do more harm than good.
    """
    if not len(truth) or scores.shape[1] < 2:
        return None
    most = max(_LEAST_SAMPLES, _MOST_SCORES // scores.shape[1])
    if len(truth) > most:  # more would cost time, and change nothing
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
    confident, right = named(scores.double(), truth)
    return metrics.expected_calibration_error(confident, right, weights)


def abstention(scores: Tensor, truth: Tensor, wanted: float) -> Abstention:
    """Find the lowest confidence above which a share `wanted` of the answers is right.

    `scores` [n, C] and true columns `truth` [n] are of held-out samples; every class weighs the
    same. The accuracy above a confidence counts one wrong answer more than there is: among the many
    confidences to choose from, one would look good enough by chance where few samples are above it.
    """
    confident, right = named(scores, truth)
    weights = class_weights(truth) * len(truth)
    order = confident.argsort(descending=True, stable=True)
    confident, right, weights = confident[order], right[order], weights[order]
    above, correct = weights.cumsum(0), (weights * right).cumsum(0)
    ends = torch.ones(len(order), dtype=torch.bool)  # the last of those with the same confidence
    ends[:-1] = confident[1:] < confident[:-1]
    reached = (ends & (correct / (above + 1) >= wanted)).nonzero().flatten()
    last = int(reached.max()) if len(reached) else None
    return Abstention(
        wanted=wanted,
        confidence=None if last is None else float(confident[last]),
        coverage=0.0 if last is None else float(above[last] / above[-1]),
        best=float((correct / (above + 1))[ends].max()) if len(order) else 0.0,
        held_out=len(truth),
    )


def class_weights(truth: Tensor) -> Tensor:
    """Weights [n] that add up to 1, and for each class to the same."""
    counts = torch.bincount(truth).double()
    return 1 / (counts[truth] * int((counts > 0).sum()))


def _scaling_helps(scores: Tensor, truth: Tensor) -> bool:
    """Whether temperatures that are fitted without a part of the samples suit that part."""
    by_class = truth.argsort(stable=True)
    part_of = torch.empty_like(truth)
    part_of[by_class] = torch.arange(len(truth)) % _PARTS  # each class is in as many as it can
    gain, weights = 0.0, class_weights(truth)
    for part in range(min(_PARTS, len(truth))):
        own = part_of == part
        if own.all():
            return False
        temperature = _best_temperature(scores[~own], truth[~own])
        fitted = _likelihood(scores[own] / temperature, truth[own], weights[own])
        gain += fitted - _likelihood(scores[own], truth[own], weights[own])
    return gain > 0


def _likelihood(scores: Tensor, truth: Tensor, weights: Tensor) -> float:
    """The weighted sum of the logarithms of the probabilities of the truth."""
    logs = torch.log_softmax(scores, dim=1).gather(1, truth.unsqueeze(1)).squeeze(1)
    return float((weights * logs).sum())


def _best_temperature(scores: Tensor, truth: Tensor) -> float:
    """The temperature with the least weighted cross-entropy, by golden section of its logarithm.

    The logarithm is taken to be normal with mean 0 and deviation 1 beforehand: else a few samples
    that are all named correctly would make the learner sure of everything.
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


def named(scores: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """The probability of the most probable class, and whether it is the true one: each [n]."""
    confident, columns = scores.softmax(dim=1).max(dim=1)
    return confident, columns == truth
