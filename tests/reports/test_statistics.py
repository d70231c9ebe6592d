"""The t-tests, against SciPy's."""

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from remask.reports.measures import TTest, paired, welch
from remask.store import Spread
from remask.store.cells import spread


@pytest.mark.parametrize("size", [3, 7, 10])
def test_welch_s_test_is_scipy_s(size: int) -> None:
    random = np.random.default_rng(size)
    one, other = random.normal(80, 1, 10), random.normal(79, 4, size)
    test = welch(spread(one.tolist()), spread(other.tolist()))
    expected = stats.ttest_ind(one, other, equal_var=False)
    assert test.kind == "Welch"
    found = (test.t, test.freedom, test.p_different)
    assert found == pytest.approx((expected.statistic, expected.df, expected.pvalue))
    higher = stats.ttest_ind(one, other, equal_var=False, alternative="greater").pvalue
    assert test.p_higher == pytest.approx(higher)
    assert test.p_higher + test.p_lower == pytest.approx(1)


def test_the_paired_test_is_scipy_s() -> None:
    random = np.random.default_rng(1)
    one = random.normal(80, 3, 8)
    other = one + random.normal(-0.5, 0.4, 8)
    test = paired((one - other).tolist())
    expected = stats.ttest_rel(one, other)
    assert (test.kind, test.freedom) == ("paired", 7)
    assert test.t == pytest.approx(expected.statistic)
    assert test.p_different == pytest.approx(expected.pvalue)
    # Seeds differ more than systems do, which hides the difference of independent samples.
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
def test_without_any_spread_every_difference_is_significant(
    test: TTest, p_higher: float, p_different: float
) -> None:
    assert (test.p_higher, test.p_different) == (p_higher, p_different)
