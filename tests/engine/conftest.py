"""What the tests of the engine share."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from remask.data.benchmark import Benchmark
from remask.methods import hal

MEAN, STD, PADDING = (0.4, 0.5, 0.6), (0.2, 0.3, 0.25), 1


@pytest.fixture(autouse=True)
def _quick_anchors(monkeypatch: pytest.MonkeyPatch) -> None:
    """HAL takes 100 steps per anchor; how it runs in a stack shows in five as well."""
    monkeypatch.setattr(hal, "_STEPS_ON_ANCHORS", 5)


@pytest.fixture(scope="session")
def images(tiny_benchmark: Callable[..., Benchmark]) -> Benchmark:
    """Two tasks of two classes, 17 and 29 train samples; cropped, mirrored and normalised."""
    plain = tiny_benchmark(tasks=((0, 1), (2, 3)), shape=(3, 8, 8))
    return replace(plain, mean=MEAN, std=STD, crop_padding=PADDING, flip=True)
