"""Student's t: whether two means differ by more than their trials' spread explains.

A standard deviation is that of the population everywhere in remask, so the variance of a mean over
n trials is its square divided by n - 1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from remask.results import Spread, spread

LEVEL = 0.05
"""What a p-value must lie below for two means to be told apart."""
FEWEST_TRIALS = 3
"""With fewer nothing is tested: the spread of two trials says next to nothing."""


@dataclass(frozen=True)
class TTest:
    """A t-test of "both means are equal"."""

    kind: Literal["Welch", "paired"]
    t: float
    """Above zero where the first mean is the higher one."""
    freedom: float
    """Degrees of freedom."""

    @property
    def p_higher(self) -> float:
        """One-sided: how likely so much above is, if the first mean is not the higher one."""
        return upper_tail(self.t, self.freedom)

    @property
    def p_lower(self) -> float:
        """One-sided: how likely so much below is, if the first mean is not the lower one."""
        return upper_tail(-self.t, self.freedom)

    @property
    def p_different(self) -> float:
        """Two-sided."""
        return min(1.0, 2 * upper_tail(abs(self.t), self.freedom))


def welch(one: Spread, other: Spread) -> TTest:
    """Welch's test of two independent samples, degrees of freedom by Welch and Satterthwaite."""
    freedoms = one.trials - 1, other.trials - 1
    parts = one.std**2 / freedoms[0], other.std**2 / freedoms[1]
    error = math.sqrt(sum(parts))
    freedom = float(sum(freedoms))
    if error:
        shares = [part / sum(parts) for part in parts]
        freedom = 1 / sum(share**2 / n for share, n in zip(shares, freedoms, strict=True))
    return TTest("Welch", _ratio(one.mean - other.mean, error), freedom)


def paired(differences: Sequence[float]) -> TTest:
    """The paired test, of what the first sample has more than the second, seed by seed."""
    found = spread(differences)
    freedom = found.trials - 1
    return TTest("paired", _ratio(found.mean, found.std / math.sqrt(freedom)), freedom)


def upper_tail(t: float, freedom: float) -> float:
    """P(T > t) of Student's t distribution."""
    square = t * t
    # Both are the probability of |T| > |t|; the first is the exact one far out, where it is small.
    if 9 * square > freedom:
        outside = _beta(freedom / (freedom + square), freedom / 2, 0.5)
    else:
        outside = max(0.0, 1 - _beta(square / (freedom + square), 0.5, freedom / 2))
    return outside / 2 if t > 0 else 1 - outside / 2


def _beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b), by its series of positive terms."""
    if x <= 0:
        return 0.0
    term = total = 1.0
    count = 0
    while term > 1e-17 * total:
        term *= x * (a + b + count) / (a + 1 + count)
        total += term
        count += 1
    log_beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    return total / a * math.exp(a * math.log(x) + b * math.log1p(-x) - log_beta)


def _ratio(difference: float, error: float) -> float:
    """A difference in standard errors; without any spread, any difference is beyond chance."""
    if error:
        return difference / error
    return math.copysign(math.inf, difference) if difference else 0.0
