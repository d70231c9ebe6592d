"""Metrics of continual learning, all read off one accuracy matrix.

The matrix `accuracy[..., j, k]` holds the percentage of correct answers on the test set of task k
after learning task j. Entries that were not measured (k > j, or a method that is evaluated once at
the end) are NaN. Leading axes (trials) are kept: every function maps `[..., T, T]` to `[...]`.
A metric that is not defined for a matrix, such as the forgetting of a method that was evaluated
only once, is NaN.
"""

import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Accuracies = NDArray[np.float64]


def average_accuracy(accuracy: Accuracies) -> Accuracies:
    """A_T: the mean over tasks of the accuracy after the last task, `[..., T, T] -> [...]`.

    Every task counts alike, whatever the size of its test set.
    """
    return _mean(accuracy[..., -1, :])


def forgetting(accuracy: Accuracies, *, include_last: bool = True) -> Accuracies:
    """F_T: how far each earlier task has fallen from its best, `[..., T, T] -> [...]`.

    F_T = 1/(T-1) sum_{k<T} (max_{k<=j<=T} a_{j,k} - a_{T,k}). With `include_last=False` the
    maximum runs over j <= T-1 only, as in the definition of Chaudhry et al. (2018); a task that
    ends better than it ever was then counts as negative forgetting.
    """
    if accuracy.shape[-1] < 2:
        return np.full(accuracy.shape[:-2], np.nan)
    rows = accuracy if include_last else accuracy[..., :-1, :]
    # A matrix whose earlier rows were never measured (JOINT) has no best to fall from.
    measured_before = ~np.isnan(accuracy[..., :-1, :-1]).all(axis=-2)
    best = _quiet(np.nanmax, rows[..., :-1], axis=-2)
    fallen = np.where(measured_before, best - accuracy[..., -1, :-1], np.nan)
    return np.asarray(fallen.mean(axis=-1))


def accuracy_over_time(accuracy: Accuracies) -> Accuracies:
    """The mean over j of the average accuracy on the tasks seen by then, `[..., T, T] -> [...]`."""
    return _mean(_quiet(np.nanmean, accuracy, axis=-1))


def plasticity(accuracy: Accuracies) -> Accuracies:
    """The mean accuracy on a task right after learning it, `[..., T, T] -> [...]`."""
    return _mean(np.diagonal(accuracy, axis1=-2, axis2=-1))


def backward_transfer(accuracy: Accuracies) -> Accuracies:
    """The mean of a_{T,k} - a_{k,k} over the tasks before the last, `[..., T, T] -> [...]`."""
    if accuracy.shape[-1] < 2:
        return np.full(accuracy.shape[:-2], np.nan)
    learnt = np.diagonal(accuracy, axis1=-2, axis2=-1)[..., :-1]
    return _mean(accuracy[..., -1, :-1] - learnt)


METRICS: dict[str, Callable[[Accuracies], Accuracies]] = {
    "A_T": average_accuracy,
    "F_T": forgetting,
    "accuracy_over_time": accuracy_over_time,
    "plasticity": plasticity,
    "backward_transfer": backward_transfer,
}


def _mean(values: Accuracies) -> Accuracies:
    """The plain mean: one missing entry makes the result missing, never silently better."""
    return np.asarray(values.mean(axis=-1))


def _quiet(reduce: Callable[..., Accuracies], values: Accuracies, *, axis: int) -> Accuracies:
    """A nan-reduction whose answer for an all-NaN slice is NaN, without numpy's warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return reduce(values, axis=axis)
