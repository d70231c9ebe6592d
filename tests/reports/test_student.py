"""The t-tests, against SciPy's."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remask.reports.statistics import TTest, paired, upper_tail, welch
from remask.results import Spread, spread

stats = pytest.importorskip("scipy.stats")


@settings(deadline=None)
@given(st.floats(-60, 60), st.floats(1, 200))
def test_the_tail_is_that_of_student_s_distribution(t: float, freedom: float) -> None:
    expected = float(stats.t.sf(t, freedom))
    assert upper_tail(t, freedom) == pytest.approx(expected, rel=1e-9, abs=1e-13)


def test_the_tail_is_known_exactly_with_one_and_two_degrees_of_freedom() -> None:
    assert upper_tail(1.0, 1) == pytest.approx(0.25)  # Cauchy: half of that beyond the quartile
    assert upper_tail(math.sqrt(2), 2) == pytest.approx((1 - math.sqrt(0.5)) / 2)
    assert upper_tail(0.0, 7.3) == 0.5
    assert (upper_tail(math.inf, 9), upper_tail(-math.inf, 9)) == (0.0, 1.0)
    assert upper_tail(1e200, 9) == 0.0


def test_welch_s_test_is_scipy_s() -> None:
    random = np.random.default_rng(0)
    for size in (3, 7, 10):
        one, other = random.normal(80, 1, 10), random.normal(79, 4, size)
        test = welch(spread(one.tolist()), spread(other.tolist()))
        expected = stats.ttest_ind(one, other, equal_var=False)
        assert test.kind == "Welch"
        assert test.t == pytest.approx(expected.statistic)
        assert test.freedom == pytest.approx(expected.df)
        assert test.p_different == pytest.approx(expected.pvalue)
        assert test.p_higher + test.p_lower == pytest.approx(1)
        higher = stats.ttest_ind(one, other, equal_var=False, alternative="greater").pvalue
        assert test.p_higher == pytest.approx(higher)


def test_the_paired_test_is_scipy_s() -> None:
    random = np.random.default_rng(1)
    one = random.normal(80, 3, 8)
    other = one + random.normal(-0.5, 0.4, 8)
    test = paired((one - other).tolist())
    expected = stats.ttest_rel(one, other)
    assert (test.kind, test.freedom) == ("paired", 7)
    assert test.t == pytest.approx(expected.statistic)
    assert test.p_different == pytest.approx(expected.pvalue)
    # The seeds differ more than the systems do, which two independent samples cannot see past.
    assert test.p_higher < 0.05 < welch(spread(one.tolist()), spread(other.tolist())).p_higher


@pytest.mark.parametrize(
    ("test", "p_higher", "p_different"),
    [
        (welch(Spread(80.0, 0.0, 3), Spread(79.0, 0.0, 5)), 0.0, 0.0),
        (welch(Spread(79.0, 0.0, 3), Spread(80.0, 0.0, 5)), 1.0, 0.0),
        (welch(Spread(80.0, 0.0, 3), Spread(80.0, 0.0, 5)), 0.5, 1.0),
        (paired([1.0, 1.0, 1.0]), 0.0, 0.0),
        (paired([0.0, 0.0, 0.0]), 0.5, 1.0),
    ],
)
def test_without_any_spread_any_difference_is_beyond_chance(
    test: TTest, p_higher: float, p_different: float
) -> None:
    assert test.p_higher == p_higher
    assert test.p_different == p_different


def test_a_published_figure_without_spread_leaves_the_freedom_of_ours() -> None:
    ours, claim = Spread(20.2, 0.7, 10), Spread(19.6, 0.0, 10)
    test = welch(ours, claim)
    assert test.freedom == pytest.approx(9)
    # The standard error of a mean of 10 trials is their population standard deviation over 3.
    assert test.t == pytest.approx(0.6 / (0.7 / 3))
