"""What the tests of the engine share."""

import pytest

from remask.methods import hal


@pytest.fixture(autouse=True)
def _quick_anchors(monkeypatch: pytest.MonkeyPatch) -> None:
    """HAL takes 100 steps per anchor; how it runs in a stack shows in five as well."""
    monkeypatch.setattr(hal, "_STEPS_ON_ANCHORS", 5)
