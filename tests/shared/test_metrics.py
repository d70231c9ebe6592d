"""Metrics against matrices worked out by hand."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from remask.metrics import (
    CURVE_METRICS,
    METRICS,
    Accuracies,
    AccuracyCurve,
    accuracy_over_time,
    average_accuracy,
    average_anytime_accuracy,
    backward_transfer,
    binned_calibration_error,
    expected_calibration_error,
    forgetting,
    forward_transfer,
    min_accuracy,
    plasticity,
    switch_drop,
    worst_case_accuracy,
)

NAN = float("nan")


def matrix(*rows: list[float]) -> Accuracies:
    return np.array(rows, dtype=np.float64)


FALLING = matrix([90, NAN, NAN], [60, 80, NAN], [70, 50, 96])
# Task 0 ends better than it ever was: 50, 60, then 70.
RISING = matrix([50, NAN, NAN], [60, 80, NAN], [70, 50, 96])
ONLY_LAST = matrix([NAN] * 3, [NAN] * 3, [90, 81, 75])
# Tasks before they are learnt do not count.
AHEAD = matrix([90, 60, 10], [60, 80, 45], [70, 50, 96])
NOT_MEASURED = matrix([NAN, NAN, NAN], [NAN, 80, NAN], [70, 50, 96])
FORGETTING = [forgetting, partial(forgetting, include_last=False)]


@pytest.mark.parametrize(
    ("metric", "accuracies", "expected"),
    [
        (average_accuracy, FALLING, (70 + 50 + 96) / 3),
        (average_accuracy, ONLY_LAST, (90 + 81 + 75) / 3),
        (average_accuracy, matrix([90, NAN], [60, NAN]), NAN),
        # Task 0 falls from 90 (its first row, not its latest before the end) to 70, task 1 from 80
        # to 50. Task 2 has had no time to be forgotten: two terms, not three.
        *[(each, FALLING, (20 + 30) / 2) for each in FORGETTING],
        # A task that ends at its best forgets nothing, or less than nothing.
        (forgetting, RISING, (0 + 30) / 2),
        (FORGETTING[1], RISING, (-10 + 30) / 2),
        *[(each, NOT_MEASURED, NAN) for each in FORGETTING],
        # Row means 90, (60 + 80) / 2 = 70 and (70 + 50 + 96) / 3 = 72.
        (accuracy_over_time, FALLING, (90 + 70 + 72) / 3),
        (accuracy_over_time, AHEAD, (90 + 70 + 72) / 3),
        (plasticity, FALLING, (90 + 80 + 96) / 3),
        (backward_transfer, FALLING, ((70 - 90) + (50 - 80)) / 2),
        (backward_transfer, RISING, ((70 - 50) + (50 - 80)) / 2),
        *[
            (each, ONLY_LAST, NAN)
            for each in (*FORGETTING, accuracy_over_time, plasticity, backward_transfer)
        ],
        *[(each, matrix([88]), 88) for each in (average_accuracy, accuracy_over_time, plasticity)],
        *[(each, matrix([88]), NAN) for each in (*FORGETTING, backward_transfer)],
    ],
)
def test_metrics_of_a_matrix_are_those_worked_out_by_hand(
    metric: Callable[[Accuracies], object], accuracies: Accuracies, expected: float
) -> None:
    assert metric(accuracies) == pytest.approx(expected, nan_ok=True)


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


# Of curves


Point = tuple[int, int, list[float]]
"""Steps, task being learnt, accuracies."""


def curve(*points: Point) -> AccuracyCurve:
    steps, learning, rows = zip(*points, strict=True)
    return AccuracyCurve(matrix(*rows), np.array(learning), np.array(steps))


NO_POINTS = AccuracyCurve(np.zeros((0, 3)), np.zeros(0, np.int64), np.zeros(0, np.int64))
DIPPING = curve(
    (10, 0, [10, NAN, NAN]),
    (100, 0, [90, NAN, NAN]),
    (105, 1, [60, 5, NAN]),
    (110, 1, [70, 40, NAN]),
    (150, 1, [55, 30, NAN]),
    (200, 1, [80, 88, NAN]),
    (210, 2, [70, 68, 20]),
    (211, 2, [20, 20, 20]),
    (300, 2, [75, 50, 96]),
)


def test_metrics_of_a_curve_are_those_worked_out_by_hand() -> None:
    # Task 0 was at 10 and task 1 at 5 while they were being learnt, which does not count; nor does
    # the last task, which nothing came after. The lowest since then are both at step 211.
    assert min_accuracy(DIPPING) == pytest.approx((20 + 20) / 2)
    assert worst_case_accuracy(DIPPING) == pytest.approx(96 / 3 + 2 / 3 * 20)
    # To task 1, which has 100 steps: from 90 to 60, at its step 5; 55 comes too late. To task 2:
    # from (80 + 88) / 2 to (70 + 68) / 2, at its step 10; its step 11 is past the first tenth.
    assert switch_drop(DIPPING) == pytest.approx((30 + 15) / 2)


def test_the_drop_of_a_mean_is_not_the_mean_of_the_lowest() -> None:
    start: Point = (10, 0, [90, NAN, NAN])
    later: list[Point] = [
        (20, 1, [90, 90, NAN]),
        (21, 2, [80, 90, 0]),
        (22, 2, [90, 80, 0]),
        (40, 2, [90, 90, 90]),
    ]
    assert np.isnan(switch_drop(curve(start, *later)))  # task 1 has no point in its first tenth
    with_one = curve(start, (11, 1, [90, 1, NAN]), *later)
    assert switch_drop(with_one) == pytest.approx((0 + 5) / 2)


def test_average_anytime_accuracy_is_the_mean_over_points_of_the_tasks_seen_by_then() -> None:
    seen = curve((5, 0, [10, NAN]), (10, 0, [90, NAN]), (15, 1, [60, 20]), (20, 1, [80, 100]))
    assert average_anytime_accuracy(seen) == pytest.approx((10 + 90 + 40 + 90) / 4)
    assert np.isnan(average_anytime_accuracy(curve((5, 1, [50, NAN]))))  # one was not measured
    assert np.isnan(average_anytime_accuracy(NO_POINTS))


def test_forward_transfer_is_what_is_known_of_a_task_before_it_is_learnt() -> None:
    untrained = np.array([50.0, 50.0, 50.0])
    assert forward_transfer(AHEAD, untrained) == pytest.approx(((60 - 50) + (45 - 50)) / 2)
    assert np.isnan(forward_transfer(FALLING, untrained))
    assert np.isnan(forward_transfer(matrix([90]), untrained[:1]))


def test_the_calibration_error_is_the_gap_between_confidence_and_accuracy_within_bins() -> None:
    # Four predictions at 0.25, one correct; six at 0.9, three correct: |1 - 1| + |5.4 - 3| of 10.
    confidence, correct = [0.25] * 4 + [0.9] * 6, [1, 0, 0, 0] + [1, 0] * 3
    assert expected_calibration_error(confidence, correct) == pytest.approx(24.0)
    assert expected_calibration_error([1.0, 0.8], [1, 1], [3, 1]) == pytest.approx(5.0)
    assert binned_calibration_error([4, 0, 6], [1.0, 0.0, 5.4], [1, 0, 3]) == pytest.approx(24.0)
    assert np.isnan(expected_calibration_error([], []))


@pytest.mark.parametrize("name", [name for name in CURVE_METRICS if name != "AAA"])
@pytest.mark.parametrize(
    "undefined",
    [
        NO_POINTS,
        curve((5, 2, [50, 50, 50]), (10, 2, [90, 80, 85])),  # all tasks at once
        curve((1, 0, [90])),
    ],
    ids=["no points", "all at once", "one task"],
)
def test_a_curve_without_switches_has_no_metrics(name: str, undefined: AccuracyCurve) -> None:
    assert np.isnan(CURVE_METRICS[name](undefined))
