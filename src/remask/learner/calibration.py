"""Calibration: probabilities that mean what they say, fitted to samples that are held out."""

import torch
from torch import Tensor

from remask.learner.accounts import Calibration

_BINS = 15
_WANTED_ACCURACY = 0.95
_LEAST_THRESHOLD = 0.5
_LOWEST, _HIGHEST = 0.05, 20.0


def calibrate(scores: Tensor, truth: Tensor) -> Calibration | None:
    """Fit a temperature to scores [n, C] and true columns [n]; None if there is nothing to fit to.

    Every class weighs the same, however many of its samples are held out. The temperature makes the
    truth most likely. `threshold` is the lowest confidence, at least 0.5, above which the held-out
    samples are named correctly 95 times in 100.
    """
    if not len(truth) or scores.shape[1] < 2:
        return None
    scores, weights = scores.double(), class_weights(truth)
    temperature = _best_temperature(scores, truth, weights)
    confident, right = _named(scores / temperature, truth)
    return Calibration(
        temperature=temperature,
        ece_before=calibration_error(scores, truth, weights),
        ece_after=calibration_error(scores / temperature, truth, weights),
        threshold=_threshold(confident, right, weights),
        samples=len(truth),
    )


def calibration_error(scores: Tensor, truth: Tensor, weights: Tensor | None = None) -> float:
    """The expected calibration error in percent, of scores [n, C], in 15 bins of confidence."""
    if weights is None:
        weights = torch.full((len(truth),), 1 / len(truth), dtype=torch.float64)
    confident, right = _named(scores.double(), truth)
    bins = (confident * _BINS).long().clamp(max=_BINS - 1)
    gaps = torch.zeros(_BINS, dtype=torch.float64)
    gaps.index_add_(0, bins, weights * (confident - right.double()))
    return 100 * float(gaps.abs().sum())


def class_weights(truth: Tensor) -> Tensor:
    """Weights [n] that add up to 1, and for each class to the same."""
    counts = torch.bincount(truth).double()
    return 1 / (counts[truth] * int((counts > 0).sum()))


def _best_temperature(scores: Tensor, truth: Tensor, weights: Tensor) -> float:
    """The temperature with the least weighted cross-entropy, by golden section of its logarithm.

    The logarithm is taken to be normal with mean 0 and deviation 1 beforehand: else a few samples
    that are all named correctly would make the learner sure of everything.
    """

    def loss(logarithm: float) -> float:
        logs = torch.log_softmax(scores / torch.tensor(logarithm).double().exp(), dim=1)
        likelihood = float((weights * logs.gather(1, truth.unsqueeze(1)).squeeze(1)).sum())
        return logarithm**2 / (2 * len(truth)) - likelihood

    low, high = float(torch.tensor(_LOWEST).log()), float(torch.tensor(_HIGHEST).log())
    ratio = (5**0.5 - 1) / 2
    for _ in range(40):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if loss(left) <= loss(right):
            high = right
        else:
            low = left
    return float(torch.tensor((low + high) / 2).double().exp())


def _named(scores: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """The probability of the class that is named, and whether it is the true one: each [n]."""
    confident, named = scores.softmax(dim=1).max(dim=1)
    return confident, named == truth


def _threshold(confident: Tensor, right: Tensor, weights: Tensor) -> float:
    order = confident.argsort(descending=True)
    named = weights[order].cumsum(0)
    accurate = (weights[order] * right[order]).cumsum(0) / named >= _WANTED_ACCURACY
    if not accurate.any():
        return 1.0
    last = int(accurate.nonzero().max())
    return max(_LEAST_THRESHOLD, float(confident[order][last]))
