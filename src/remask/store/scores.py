"""The metrics of a trial, and their mean and deviation over trials."""

import math
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from remask.metrics import CURVE_METRICS, METRICS, AccuracyCurve, binned_calibration_error
from remask.record import TrialRecord

_MATRICES = ("class_il", "task_il", "validation_class_il", "validation_task_il")
_CURVES = ("class_il", "task_il")
SCORES = (
    *(f"{matrix}_{metric}" for matrix in _MATRICES for metric in METRICS),
    *(f"{setting}_{metric}" for setting in _CURVES for metric in CURVE_METRICS),
    "class_il_ECE",
)
"""The names of all metrics: `class_il_A_T` and so on for the test set, `validation_class_il_A_T`
and so on for held-out training data, `class_il_min_ACC` and so on for curves, and the calibration
error."""
COSTS = ("seconds", "flops", "memory_bytes")
"""The costs of a trial, by the names of its record's fields."""


class Spread(NamedTuple):
    """A mean and the population standard deviation (divided by n, not n - 1) over trials.

    Published deviations are most likely of this kind: it is what NumPy's `std` computes.
    """

    mean: float
    std: float
    """Zero for one trial, which has no spread: do not show it."""
    trials: int
    """The number of values."""


def scores(record: TrialRecord) -> dict[str, float]:
    """All metrics of a trial by name; NaN where one is not defined."""
    found = dict.fromkeys(SCORES, math.nan)
    tasks = len(record.class_il)
    if not tasks:
        return found
    matrices = np.full((len(_MATRICES), tasks, tasks), math.nan)
    for place, name in enumerate(_MATRICES):
        if matrix := getattr(record, name):
            matrices[place] = matrix
    for metric, measure in METRICS.items():
        values = measure(matrices).tolist()
        found |= {f"{name}_{metric}": value for name, value in zip(_MATRICES, values, strict=True)}
    if curve := record.curve:
        learning, steps = np.array(curve.learning, np.int64), np.array(curve.steps, np.int64)
        for name in _CURVES:
            accuracy = np.array(getattr(curve, name), np.float64).reshape(len(steps), tasks)
            over_time = AccuracyCurve(accuracy, learning, steps)
            found |= {f"{name}_{m}": measure(over_time) for m, measure in CURVE_METRICS.items()}
    if answers := record.answers:
        error = binned_calibration_error(answers.counts, answers.confidence, answers.right)
        found["class_il_ECE"] = error
    return found


def pack(values: Iterable[float]) -> bytes:
    """Numbers as float64, little-endian."""
    return np.fromiter(values, "<f8").tobytes()


def unpack(trials: Sequence[bytes]) -> NDArray[np.float64]:
    """The metrics of trials from `pack`, [trials, SCORES]."""
    return np.frombuffer(b"".join(trials), "<f8").reshape(-1, len(SCORES))


def spread(values: Sequence[float]) -> Spread:
    """The mean and population standard deviation; NaN if there are no values."""
    return spreads(np.array(values, np.float64)[:, None])[0]


def spreads(values: NDArray[np.float64]) -> list[Spread]:
    """The mean and population standard deviation over trials, [trials, N] -> N of them."""
    trials, number = values.shape
    if not trials:
        return [Spread(math.nan, math.nan, 0)] * number
    # NumPy adds up contiguous rows as it adds up one row alone: the same bits.
    rows = np.ascontiguousarray(values.T)
    means = np.add.reduce(rows, axis=1) / trials  # much faster than `mean` and `std`
    rest = rows - means[:, None]
    stds = np.sqrt(np.add.reduce(rest * rest, axis=1) / trials)
    return list(map(Spread, means.tolist(), stds.tolist(), repeat(trials)))
