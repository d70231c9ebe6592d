"""Metrics of continual learning, from an accuracy matrix or a curve of accuracy within tasks.

`accuracy[..., j, k]` is the accuracy in percent on task k after learning task j, NaN where it was
not measured (k > j, or a method that is evaluated only at the end). Every function maps
`[..., T, T]` to `[...]`; a metric that is not defined for a matrix is NaN.

`docs/metrics.md` lists all metrics with their definitions and sources.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Accuracies = NDArray[np.float64]
_SOON = 0.1  # the share of a task's steps that counts as right after the switch


def average_accuracy(accuracy: Accuracies) -> Accuracies:
    """A_T: the mean over tasks of the accuracy after the last task."""
    return _mean(accuracy[..., -1, :])


def forgetting(accuracy: Accuracies, *, include_last: bool = True) -> Accuracies:
    """F_T: the mean loss of each earlier task since its best.

    F_T = 1/(T-1) sum_{k<T} (max_{k<=j<=T} a_{j,k} - a_{T,k}). With `include_last=False` the
    maximum is over j <= T-1, as in Chaudhry et al. (2018), and can be negative.
    """
    if accuracy.shape[-1] < 2:
        return np.full(accuracy.shape[:-2], np.nan)
    rows = (accuracy if include_last else accuracy[..., :-1, :])[..., :-1]
    # A matrix whose earlier rows were never measured (JOINT) has no best to fall from.
    measured_before = ~np.isnan(accuracy[..., :-1, :-1]).all(axis=-2)
    best = np.where(np.isnan(rows), -np.inf, rows).max(axis=-2)
    return _mean(np.where(measured_before, best - accuracy[..., -1, :-1], np.nan))


def accuracy_over_time(accuracy: Accuracies) -> Accuracies:
    """Average incremental accuracy: the mean over j of the mean over k <= j."""
    known = np.tri(accuracy.shape[-1], dtype=bool) & ~np.isnan(accuracy)
    counts = known.sum(axis=-1)
    sums = np.where(known, accuracy, 0.0).sum(axis=-1)
    return _mean(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan))


def plasticity(accuracy: Accuracies) -> Accuracies:
    """The mean accuracy on a task right after learning it."""
    return _mean(np.diagonal(accuracy, axis1=-2, axis2=-1))


def backward_transfer(accuracy: Accuracies) -> Accuracies:
    """The mean of a_{T,k} - a_{k,k} over the tasks before the last."""
    if accuracy.shape[-1] < 2:
        return np.full(accuracy.shape[:-2], np.nan)
    learnt = np.diagonal(accuracy, axis1=-2, axis2=-1)[..., :-1]
    return _mean(accuracy[..., -1, :-1] - learnt)


def forward_transfer(accuracy: Accuracies, untrained: Accuracies) -> Accuracies:
    """The mean of a_{k-1,k} - b_k over the tasks after the first.

    b, `untrained` [..., T], is the accuracy on each task before any training. Records have neither;
    `docs/metrics.md` shows how to measure both.
    """
    if accuracy.shape[-1] < 2:
        return np.full(accuracy.shape[:-2], np.nan)
    ahead = np.diagonal(accuracy, offset=1, axis1=-2, axis2=-1)
    return _mean(ahead - untrained[..., 1:])


METRICS: dict[str, Callable[[Accuracies], Accuracies]] = {
    "A_T": average_accuracy,
    "F_T": forgetting,
    "accuracy_over_time": accuracy_over_time,
    "plasticity": plasticity,
    "backward_transfer": backward_transfer,
}


@dataclass(frozen=True, eq=False)
class AccuracyCurve:
    """Accuracy within tasks; the last point of a task is at its end."""

    accuracy: Accuracies
    """Percent, [points, T]; NaN on tasks that are not learnt yet."""
    learning: NDArray[np.int64]
    """The task being learnt at each point, [points], ascending."""
    steps: NDArray[np.int64]
    """Number of steps taken, [points], ascending."""

    def of(self, task: int) -> slice:
        """The points at which a task was being learnt."""
        first, end = np.searchsorted(self.learning, [task, task + 1])
        return slice(int(first), int(end))


def min_accuracy(curve: AccuracyCurve) -> float:
    """min-ACC: the mean over all tasks but the last of the lowest accuracy since it was learnt.

    As De Lange et al. (2023), at the end of the stream: points up to a task's end do not count.
    """
    lowest = []
    for task in range(curve.accuracy.shape[-1] - 1):
        own = curve.of(task)
        if own.start == own.stop:  # it was not learnt by itself
            return math.nan
        lowest.append(_lowest(curve.accuracy[own.stop :, task]))
    return _plain_mean(lowest)


def worst_case_accuracy(curve: AccuracyCurve) -> float:
    """WC-ACC: A/T + (1 - 1/T) min-ACC, A the accuracy on the last task at the end."""
    if not len(curve.accuracy):
        return math.nan
    share = 1 / len(curve.accuracy[-1])
    return share * float(curve.accuracy[-1, -1]) + (1 - share) * min_accuracy(curve)


def average_anytime_accuracy(curve: AccuracyCurve) -> float:
    """AAA: the mean over all points of the mean accuracy on the tasks seen so far."""
    if not len(curve.accuracy):
        return math.nan
    seen = np.arange(curve.accuracy.shape[-1]) <= curve.learning[:, None]
    of_seen = np.where(seen, curve.accuracy, 0.0).sum(axis=-1) / seen.sum(axis=-1)
    return float(of_seen.mean())


def switch_drop(curve: AccuracyCurve) -> float:
    """The mean drop of old tasks right after a switch.

    For a switch to task j: the mean accuracy on the tasks before j at the end of task j - 1, minus
    the lowest value of this mean in the first tenth of the steps of j. NaN without a point there.
    """
    falls = []
    for task in range(1, curve.accuracy.shape[-1]):
        before, within = curve.of(task - 1), curve.of(task)
        if before.start == before.stop or within.start == within.stop:
            return math.nan
        start, end = curve.steps[before.stop - 1], curve.steps[within.stop - 1]
        soon = curve.steps[within] <= start + _SOON * (end - start)
        of_old = curve.accuracy[:, :task].mean(axis=-1)
        falls.append(float(of_old[before.stop - 1]) - _lowest(of_old[within][soon]))
    return _plain_mean(falls)


CURVE_METRICS: dict[str, Callable[[AccuracyCurve], float]] = {
    "min_ACC": min_accuracy,
    "WC_ACC": worst_case_accuracy,
    "AAA": average_anytime_accuracy,
    "switch_drop": switch_drop,
}


CALIBRATION_BINS = 15
"""Number of bins of equal width from 0 to 1 in the calibration error, as in most publications."""


def expected_calibration_error(
    confidence: ArrayLike, correct: ArrayLike, weights: ArrayLike | None = None
) -> float:
    """ECE of Guo et al. (2017) in percent; NaN without predictions.

    `confidence` [n] holds the probabilities of the predicted classes, `correct` [n] whether each
    prediction is correct, `weights` [n] how much each counts (default: all the same).
    """
    sure, right = np.asarray(confidence, np.float64), np.asarray(correct, np.float64)
    share = np.ones(len(sure)) if weights is None else np.asarray(weights, np.float64)
    bins = np.minimum((sure * CALIBRATION_BINS).astype(np.int64), CALIBRATION_BINS - 1)
    sums = [
        np.bincount(bins, part, CALIBRATION_BINS) for part in (share, share * sure, share * right)
    ]
    return binned_calibration_error(*sums)


def binned_calibration_error(counts: ArrayLike, confidence: ArrayLike, correct: ArrayLike) -> float:
    """ECE in percent from sums over the predictions of each bin, [bins] each.

    `counts` is the number of predictions, `confidence` the sum of their probabilities, `correct`
    the number of correct ones.
    """
    total = np.sum(np.asarray(counts, np.float64))
    gaps = np.abs(np.asarray(confidence, np.float64) - np.asarray(correct, np.float64))
    return float(100 * gaps.sum() / total) if total else math.nan


def _lowest(values: Accuracies) -> float:
    """The minimum; NaN if there are no values or any is NaN."""
    return float(values.min()) if len(values) else math.nan


def _plain_mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _mean(values: Accuracies) -> Accuracies:
    """The mean over the last axis; NaN if any entry is."""
    return np.asarray(values.mean(axis=-1))
