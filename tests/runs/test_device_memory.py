"""How many trials fit on a device: the arithmetic alone, without a device."""

from collections.abc import Callable

import pytest

from remask.machine import TooLargeError
from remask.runs.device_memory import MOST_TRIALS, trials_that_fit

GB = 10**9


def _linear(shared: float, per_trial: float) -> tuple[list[int], Callable[[int], int]]:
    asked: list[int] = []

    def needed(trials: int) -> int:
        asked.append(trials)
        return int((shared + per_trial * trials) * GB)

    return asked, needed


@pytest.mark.parametrize(
    ("shared", "per_trial", "free", "expected"),
    [
        (0.5, 1.0, 10, 8),  # 9 GB can be used: 0.5 + 8 * 1
        (0.0, 1.0, 10, 9),
        (8.0, 1.0, 10, 1),
        (0.5, 0.001, 80, MOST_TRIALS),
        (0.2, 3.0, 40, 11),
    ],
)
def test_a_stack_takes_as_many_trials_as_fit(
    shared: float, per_trial: float, free: float, expected: int
) -> None:
    asked, needed = _linear(shared, per_trial)
    assert trials_that_fit(needed, int(free * GB)) == expected
    assert asked == [1, 2], "two measurements, however many fit"


def test_what_does_not_fit_at_all_is_refused_with_the_figures() -> None:
    _, needed = _linear(1.0, 9.0)
    with pytest.raises(TooLargeError, match=r"one trial takes 10 GB .* 9\.0 GB can be used"):
        trials_that_fit(needed, 10 * GB)


def test_memory_that_does_not_grow_lets_the_most_in() -> None:
    _, needed = _linear(1.0, 0.0)
    assert trials_that_fit(needed, 10 * GB) == MOST_TRIALS
