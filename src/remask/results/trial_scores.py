"""The metrics of a trial, from its record, and their spread over trials."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from remask.metrics import CURVE_METRICS, METRICS, AccuracyCurve, binned_calibration_error
from remask.record import Curve, Matrix, TrialRecord

Scores = NDArray[np.float64]
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
    return binned_calibration_error(answers.counts, answers.confidence, answers.right)


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


def packed_scores(record: TrialRecord) -> bytes:
    """All metrics of a trial in the order of SCORES, as float64, little-endian."""
    found = scores(record)
    return np.array([found[name] for name in SCORES], dtype="<f8").tobytes()


def unpacked(trials: Sequence[bytes]) -> Scores:
    """The metrics of trials from `packed_scores`, [trials, SCORES]."""
    joined = np.frombuffer(b"".join(trials), dtype="<f8").astype(np.float64, copy=False)
    return joined.reshape(-1, len(SCORES))


def spread(values: Sequence[float]) -> Spread:
    """The mean and population standard deviation; NaN if there are no values."""
    return Spreads(["values"], np.array(values, dtype=np.float64)[None])["values"]


class Spreads(Mapping[str, Spread]):
    """The mean and population standard deviation of each row of `values`, by name."""

    def __init__(self, names: Sequence[str], values: Scores) -> None:
        self._names, (rows, self._trials) = names, values.shape
        if self._trials:
            # NumPy adds up contiguous rows as it adds up one row alone: the same bits.
            values = np.ascontiguousarray(values)
            self._means, self._stds = values.mean(axis=1).tolist(), values.std(axis=1).tolist()
        else:
            self._means = self._stds = [math.nan] * rows

    def __getitem__(self, name: str) -> Spread:
        try:
            at = self._names.index(name)
        except ValueError:
            raise KeyError(name) from None
        return Spread(self._means[at], self._stds[at], self._trials)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
