"""t-tests of means over trials.

Standard deviations are those of the population everywhere in remask, so the squared standard error
of a mean over n trials is std^2 / (n - 1).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, cast

import numpy as np

from remask.machine import require_room_for_scipy
from remask.record import TrialRecord
from remask.store.cells import Cell, Spread, spread

Verdict = Literal["no significant difference", "better", "worse", "too few trials", "not run"]
LEVEL = 0.05
"""Differences with a p-value below this are significant."""
FEWEST_TRIALS = 3
"""With fewer trials nothing is tested: the standard deviation of two means little."""


@dataclass(frozen=True)
class TTest:
    """A t-test of the null hypothesis that both means are equal."""

    kind: Literal["Welch", "paired"]
    t: float
    """Positive if the first mean is higher."""
    freedom: float
    """Degrees of freedom."""

    @property
    def p_higher(self) -> float:
        """One-sided p-value of "the first mean is higher"."""
        return upper_tail(self.t, self.freedom)

    @property
    def p_lower(self) -> float:
        """One-sided p-value of "the first mean is lower"."""
        return upper_tail(-self.t, self.freedom)

    @property
    def p_different(self) -> float:
        """Two-sided p-value."""
        return min(1.0, 2 * upper_tail(abs(self.t), self.freedom))


def upper_tail(t: float, freedom: float) -> float:
    """P(T > t) of Student's t distribution."""
    return float(_stdtr()(freedom, -t))


@cache
def _stdtr() -> Callable[[float, float], float]:
    """The cumulative distribution function, imported on first use: SciPy takes a while to load."""
    require_room_for_scipy("A t-test")
    from scipy.special import stdtr  # type: ignore[import-untyped]

    return cast(Callable[[float, float], float], stdtr)


def welch(one: Spread, other: Spread) -> TTest:
    """Welch's test of two independent samples."""
    freedoms = one.trials - 1, other.trials - 1
    parts = one.std**2 / freedoms[0], other.std**2 / freedoms[1]
    error = math.sqrt(sum(parts))
    freedom = float(sum(freedoms))
    if error:  # by Welch and Satterthwaite
        shares = [part / sum(parts) for part in parts]
        freedom = 1 / sum(share**2 / n for share, n in zip(shares, freedoms, strict=True))
    return TTest("Welch", _ratio(one.mean - other.mean, error), freedom)


def paired(differences: Sequence[float]) -> TTest:
    """The paired test of the differences between two samples, seed by seed."""
    found = spread(differences)
    freedom = found.trials - 1
    return TTest("paired", _ratio(found.mean, found.std / math.sqrt(freedom)), freedom)


def _ratio(difference: float, error: float) -> float:
    """The difference in standard errors; infinite if there is no spread at all."""
    if error:
        return difference / error
    return math.copysign(math.inf, difference) if difference else 0.0


def t_test(one: Mapping[int, float], other: Mapping[int, float]) -> TTest | None:
    """Test two samples by seed: paired if they share enough seeds, else Welch's.

    Returns None if either has too few trials.
    """
    if min(len(one), len(other)) < FEWEST_TRIALS:
        return None
    shared = [seed for seed in one if seed in other]
    if len(shared) >= FEWEST_TRIALS:
        return paired([one[seed] - other[seed] for seed in shared])
    return welch(spread(list(one.values())), spread(list(other.values())))


def verdict(test: TTest | None, *, higher_is_better: bool) -> Verdict:
    """Whether the first mean is significantly better or worse than the second."""
    if test is None:
        return "too few trials"
    if test.p_different >= LEVEL:
        return "no significant difference"
    return "better" if (test.t > 0) == higher_is_better else "worse"


def by_seed(measure: str, cell: Cell | None) -> dict[int, float]:
    """A measure of each finished trial in which it is defined, by seed."""
    if cell is None:
        return {}
    if measure.startswith("confidence"):
        values = [_confidence(measure, record) for record in cell.finished]
    else:
        values = cell.values(measure)
    seeds = [record.seed for record in cell.finished]
    return {s: value for s, value in zip(seeds, values, strict=True) if not math.isnan(value)}


def _confidence(measure: str, record: TrialRecord) -> float:
    """The mean probability of the true class in the first or the last task, in percent."""
    if not record.tasks:
        return math.nan
    classes = record.tasks[0] if measure == "confidence_first_task" else record.tasks[-1]
    return 100 * float(np.mean([record.confidence[label] for label in classes]))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction for several tests; NaN values are ignored and stay NaN."""
    known = sorted((p, index) for index, p in enumerate(p_values) if not math.isnan(p))
    corrected = [math.nan] * len(p_values)
    largest = 0.0
    for rank, (p, index) in enumerate(known):
        largest = max(largest, min(1.0, p * (len(known) - rank)))
        corrected[index] = largest
    return corrected
