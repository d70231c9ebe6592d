"""Metrics against matrices worked out by hand."""

import numpy as np
import pytest

from remask.metrics import (
    METRICS,
    Accuracies,
    accuracy_over_time,
    average_accuracy,
    backward_transfer,
    forgetting,
    plasticity,
)

NAN = float("nan")


def matrix(*rows: list[float]) -> Accuracies:
    return np.array(rows, dtype=np.float64)


FALLING = matrix([90, NAN, NAN], [60, 80, NAN], [70, 50, 96])
# Task 0 ends better than it ever was: 50, 60, then 70.
RISING = matrix([50, NAN, NAN], [60, 80, NAN], [70, 50, 96])
ONLY_LAST = matrix([NAN] * 3, [NAN] * 3, [90, 81, 75])


def test_average_accuracy_is_the_mean_of_the_last_row() -> None:
    assert average_accuracy(FALLING) == pytest.approx((70 + 50 + 96) / 3)


def test_forgetting_is_the_mean_fall_from_the_best_of_every_task_but_the_last() -> None:
    # Task 0 falls from 90 (its first row, not its latest before the end) to 70, task 1 from 80 to
    # 50. Task 2 has had no time to be forgotten: two terms, not three.
    assert forgetting(FALLING) == pytest.approx((20 + 30) / 2)
    assert forgetting(FALLING, include_last=False) == pytest.approx((20 + 30) / 2)


def test_a_task_that_ends_at_its_best_forgets_nothing_or_less_than_nothing() -> None:
    assert forgetting(RISING) == pytest.approx((0 + 30) / 2)
    assert forgetting(RISING, include_last=False) == pytest.approx((-10 + 30) / 2)


def test_accuracy_over_time_averages_the_tasks_seen_after_each_task() -> None:
    # Row means 90, (60 + 80) / 2 = 70 and (70 + 50 + 96) / 3 = 72.
    assert accuracy_over_time(FALLING) == pytest.approx((90 + 70 + 72) / 3)


def test_plasticity_is_the_mean_of_the_diagonal() -> None:
    assert plasticity(FALLING) == pytest.approx((90 + 80 + 96) / 3)


def test_backward_transfer_compares_the_end_with_the_moment_of_learning() -> None:
    assert backward_transfer(FALLING) == pytest.approx(((70 - 90) + (50 - 80)) / 2)
    assert backward_transfer(RISING) == pytest.approx(((70 - 50) + (50 - 80)) / 2)


def test_a_matrix_measured_only_at_the_end_has_an_accuracy_and_no_history() -> None:
    assert average_accuracy(ONLY_LAST) == pytest.approx((90 + 81 + 75) / 3)
    assert np.isnan(forgetting(ONLY_LAST))
    assert np.isnan(forgetting(ONLY_LAST, include_last=False))
    assert np.isnan(accuracy_over_time(ONLY_LAST))
    assert np.isnan(plasticity(ONLY_LAST))
    assert np.isnan(backward_transfer(ONLY_LAST))


def test_one_task_that_was_never_measured_before_the_end_makes_forgetting_undefined() -> None:
    gap = matrix([NAN, NAN, NAN], [NAN, 80, NAN], [70, 50, 96])
    assert np.isnan(forgetting(gap))
    assert np.isnan(forgetting(gap, include_last=False))


def test_a_missing_last_measurement_makes_the_average_accuracy_undefined() -> None:
    assert np.isnan(average_accuracy(matrix([90, NAN], [60, NAN])))


def test_a_benchmark_of_one_task_has_accuracy_and_plasticity_but_nothing_to_forget() -> None:
    single = matrix([88])
    assert average_accuracy(single) == accuracy_over_time(single) == plasticity(single) == 88
    assert np.isnan(forgetting(single))
    assert np.isnan(forgetting(single, include_last=False))
    assert np.isnan(backward_transfer(single))


@pytest.mark.parametrize("name", METRICS)
def test_leading_axes_are_kept_and_do_not_mix(name: str) -> None:
    stack = np.stack([np.stack([FALLING, RISING, ONLY_LAST]), np.stack([RISING] * 3)])
    values = METRICS[name](stack)
    assert values.shape == (2, 3)
    one_by_one = [[METRICS[name](trial) for trial in row] for row in stack]
    np.testing.assert_array_equal(values, np.array(one_by_one))


@pytest.mark.parametrize("name", METRICS)
def test_trials_of_a_one_task_benchmark_keep_their_axis(name: str) -> None:
    assert METRICS[name](np.full((4, 1, 1), 50.0)).shape == (4,)


def test_forgetting_without_the_last_row_keeps_the_trial_axis_too() -> None:
    values = forgetting(np.stack([FALLING, RISING, ONLY_LAST]), include_last=False)
    np.testing.assert_allclose(values, [25, 10, NAN])
