"""Measuring on held-out samples: temperature, when to abstain, and what is unknown."""

import math

import torch
from torch import Tensor

from remask import metrics
from remask.learner.predictions import Abstention, UnknownTest
from remask.learner.results import Calibration
from remask.learner.settings import LearnerError
from remask.methods.statistics import ClassStatistics

_LEAST_SAMPLES, _MOST_SCORES = 500, 500_000
_LOWEST, _HIGHEST = 0.05, 20.0
_FOLDS = 5
_SHRINKAGE = 10.0  # added to a covariance, in units of the mean variance of a feature


def calibrate(scores: Tensor, truth: Tensor) -> Calibration | None:
    """Fit a temperature to scores [n, C] and true columns [n]; None if there is nothing to fit to.

    Every class weighs the same, however many of its samples are held out. The temperature minimises
    the cross-entropy. It stays at 1 unless it also helps in cross-validation: with few samples, a
    fit can do more harm than good.
    """
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
    confident, right = _predicted(scores.double(), truth)
    return metrics.expected_calibration_error(confident, right, weights)


def find_abstention(scores: Tensor, truth: Tensor, wanted: float) -> Abstention:
    """Find the lowest confidence above which a share `wanted` of the answers is right.

    `scores` [n, C] and true columns `truth` [n] are of held-out samples; every class weighs the
    same. One wrong answer is added to those above a confidence: otherwise one of many confidences
    would look good enough by chance where few samples are above it.
    """
    confident, right = _predicted(scores, truth)
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
    """Return weights [n] that sum to 1, and to the same for each class."""
    counts = torch.bincount(truth).double()
    return 1 / (counts[truth] * int((counts > 0).sum()))


def _scaling_helps(scores: Tensor, truth: Tensor) -> bool:
    """Whether temperatures that are fitted without a fold suit the samples of that fold."""
    by_class = truth.argsort(stable=True)
    fold_of = torch.empty_like(truth)
    fold_of[by_class] = torch.arange(len(truth)) % _FOLDS  # spread each class over folds
    gain, weights = 0.0, class_weights(truth)
    for fold in range(min(_FOLDS, len(truth))):
        own = fold_of == fold
        if own.all():
            return False
        temperature = _best_temperature(scores[~own], truth[~own])
        fitted = _likelihood(scores[own] / temperature, truth[own], weights[own])
        gain += fitted - _likelihood(scores[own], truth[own], weights[own])
    return gain > 0


def _likelihood(scores: Tensor, truth: Tensor, weights: Tensor) -> float:
    """The weighted sum of the log-probabilities of the truth."""
    logs = torch.log_softmax(scores, dim=1).gather(1, truth.unsqueeze(1)).squeeze(1)
    return float((weights * logs).sum())


def _best_temperature(scores: Tensor, truth: Tensor) -> float:
    """The temperature with the least weighted cross-entropy, by golden section of its logarithm.

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


def _predicted(scores: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """The probability of the most probable class, and whether it is the true one: each [n]."""
    confident, columns = scores.softmax(dim=1).max(dim=1)
    return confident, columns == truth


class Novelty:
    """Relative Mahalanobis distance (Ren et al. 2021) of features from the nearest class.

    It is the squared distance from the nearest class mean, under the covariance within classes,
    minus the squared distance from the mean of all samples, under the covariance of all samples.
    Both covariances are shrunk strongly towards a multiple of the identity.
    """

    def __init__(self, stats: ClassStatistics) -> None:
        assert stats.gram is not None
        seen, total = stats.seen, stats.counts.sum()
        sums, means, centre = stats.sums[seen], stats.means[seen], stats.sums[seen].sum(0) / total
        within = (stats.gram - sums.T @ means) / total
        spread = stats.gram / total - torch.outer(centre, centre)
        self._means, self._centre = means, centre
        self._within, self._spread = _inverse(within), _inverse(spread)

    def distances(self, features: Tensor) -> Tensor:
        """Compute the distances [n] of features [n, D]; they may be below 0."""
        apart = features.double() - self._centre
        means = self._means - self._centre
        own = _squared(apart, self._within)
        cross = apart @ self._within @ means.T
        nearest = (own.unsqueeze(1) - 2 * cross + _squared(means, self._within)).min(1).values
        return nearest - _squared(apart, self._spread)


def unknown_test(distances: Tensor, rate: float) -> UnknownTest:
    """Calibrate the threshold on the distances [n] of held-out samples of known classes.

    A new sample of the same kind is above it with a probability of at most `rate` (conformal
    prediction). Raises LearnerError if there are too few samples for the rate.
    """
    count = len(distances)
    rank = math.ceil((count + 1) * (1 - rate) - 1e-9)
    if rank > count:
        raise LearnerError(
            f"a false-alarm rate of {rate:g} needs at least {math.ceil(1 / rate - 1e-9) - 1} "
            f"held-out samples, and the learner has {count}: give unknown={1 / (count + 1):.2g} or "
            f"more, or learn with a larger memory"
        )
    threshold = float(distances.sort().values[max(rank, 1) - 1])
    return UnknownTest(rate, threshold, count)


def auroc(known: Tensor, unknown: Tensor) -> float:
    """Compute the probability that an unknown sample has a larger distance than a known one."""
    known = known.sort().values
    below = torch.searchsorted(known, unknown)
    not_above = torch.searchsorted(known, unknown, right=True)
    return float((below + not_above).double().sum() / (2 * len(known) * len(unknown)))


def _inverse(covariance: Tensor) -> Tensor:
    covariance = (covariance + covariance.T) / 2
    scale = float(covariance.diagonal().mean())
    covariance.diagonal().add_(_SHRINKAGE * scale if scale > 0 else 1.0)
    inverse: Tensor = torch.linalg.inv(covariance)
    return inverse


def _squared(rows: Tensor, precision: Tensor) -> Tensor:
    return ((rows @ precision) * rows).sum(1)


def check_share(name: str, value: object, meaning: str, example: str) -> None:
    """Raise LearnerError unless a value is None or a number between 0 and 1."""
    if value is None or (type(value) in (int, float) and 0 < value < 1):  # type: ignore[operator]
        return
    raise LearnerError(
        f"{name}={value!r:.60}: give the {meaning} as a number between 0 and 1, such as {example}"
    )
