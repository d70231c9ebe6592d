"""The metrics of a trial, from its record, and their spread over trials."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from remask.metrics import CURVE_METRICS, METRICS, AccuracyCurve, calibration_error
from remask.results.record import TrialRecord
from remask.results.record_parts import Curve, Matrix

_MATRICES = ("class_il", "task_il", "validation_class_il", "validation_task_il")
_CURVES = ("class_il", "task_il")
SCORES = (
    *(f"{matrix}_{metric}" for matrix in _MATRICES for metric in METRICS),
    *(f"{setting}_{metric}" for setting in _CURVES for metric in CURVE_METRICS),
    "class_il_ECE",
)
"""The names of all metrics, `class_il_A_T` and so on: on the test set, and on held-out training
data `validation_class_il_A_T` and so on; then those of curves, `class_il_min_ACC` and so on; and
the calibration error."""
COSTS = ("seconds", "flops", "memory_bytes")
"""What a trial took, by the names of its record's fields."""


@dataclass(frozen=True)
class Spread:
    """A mean and the population standard deviation (divided by n, not n - 1) over trials.

    The published ones are most likely of this kind: it is what NumPy's `std` computes.
    """

    mean: float
    std: float
    """Zero for one trial, which has no spread: show none."""
    trials: int
    """How many values it is over."""


def scores(record: TrialRecord) -> dict[str, float]:
    """Compute all metrics of a trial, `class_il_A_T` and so on; NaN where one is not defined."""
    of_matrices = {
        f"{name}_{metric}": _measure(getattr(record, name), metric)
        for name in _MATRICES
        for metric in METRICS
    }
    of_curves = {
        f"{name}_{metric}": compute(_curve(record, name))
        for name in _CURVES
        for metric, compute in CURVE_METRICS.items()
    }
    return {**of_matrices, **of_curves, "class_il_ECE": _calibration_error(record)}


def _calibration_error(record: TrialRecord) -> float:
    answers = record.answers
    if answers is None:
        return math.nan
    return calibration_error(answers.counts, answers.confidence, answers.right)


def _curve(record: TrialRecord, setting: str) -> AccuracyCurve:
    """Its curve; one without points if it has none, of which every metric is NaN."""
    curve = record.curve or Curve(steps=(), learning=(), class_il=(), task_il=())
    shape = (len(curve.steps), len(record.class_il))
    return AccuracyCurve(
        np.array(getattr(curve, setting), dtype=np.float64).reshape(shape),
        np.array(curve.learning, dtype=np.int64),
        np.array(curve.steps, dtype=np.int64),
    )


def _measure(matrix: Matrix, metric: str) -> float:
    if not matrix:  # a failed trial, or one that held nothing out
        return math.nan
    return float(METRICS[metric](np.array(matrix, dtype=np.float64)))


def spread(values: Sequence[float]) -> Spread:
    """The mean and population standard deviation; NaN if there are no values."""
    if not values:
        return Spread(math.nan, math.nan, 0)
    return Spread(float(np.mean(values)), float(np.std(values)), len(values))
