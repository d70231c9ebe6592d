"""Samples that resemble no known class: a distance in feature space, from statistics alone."""

import math

import torch
from torch import Tensor

from remask.heads import ClassStatistics
from remask.learner.errors import LearnerError
from remask.learner.results import UnknownTest

_SHRINKAGE = 10.0
"""Added to a covariance, in units of the mean variance of a feature."""


class Novelty:
    """Relative Mahalanobis distance (Ren et al. 2021) of features from the nearest class.

    It is the squared distance from the nearest class mean, under the covariance within classes,
    minus the squared distance from the mean of all samples, under the covariance of all samples.
    Both covariances are shrunk strongly towards a multiple of the identity.
    """

    def __init__(self, stats: ClassStatistics) -> None:
        assert stats.gram is not None
        seen, total = stats.seen, stats.counts.sum()
        counts, sums = stats.counts[seen], stats.sums[seen]
        means, centre = sums / counts.unsqueeze(1), sums.sum(0) / total
        within = (stats.gram - sums.T @ means) / total
        spread = stats.gram / total - torch.outer(centre, centre)
        self._means, self._centre = means, centre
        self._within, self._spread = _inverse(within), _inverse(spread)

    def distances(self, features: Tensor) -> Tensor:
        """Compute the distances [n] of features [n, D]; they may be below 0."""
        features = features.double()
        apart = features - self._centre
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
    """The probability that an unknown sample is farther away than a known one, [n] and [m]."""
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
