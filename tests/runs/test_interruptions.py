"""Killed at any moment, a run ends bit-identical to one that was left alone."""

import random
from pathlib import Path
from typing import Any

import pytest

from remask.config import TrialConfig
from remask.methods import METHODS
from tests.runs.killing import run_uninterrupted, run_with_kills
from tests.runs.run_samples import small


def _configs(method: str, trials: int, epochs: int) -> list[TrialConfig]:
    """A stack; of several trials, masked and unmasked ones."""
    masks = [None, -1.0, float("-inf")] if METHODS[method].unmaskable is None else [None]
    settings: dict[str, Any] = {"method": method, "epochs": epochs, "limit": None}
    return [
        config
        for seed in range(trials)
        for config in small([seed], masks=[masks[seed % len(masks)]], **settings)
    ]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("method", "trials", "epochs", "kills", "least"),
    [
        ("er", 1, 2, 3, 1),
        ("derpp", 3, 2, 3, 1),
        *(
            pytest.param(method, trials, 12, 10, 3, marks=pytest.mark.faults)
            for method in sorted(name for name, kind in METHODS.items() if kind.trains_net)
            for trials in (1, 4)
        ),
    ],
)
def test_a_killed_run_ends_with_the_same_bits(
    tmp_path: Path, method: str, trials: int, epochs: int, kills: int, least: int
) -> None:
    configs = _configs(method, trials, epochs)
    whole, seconds = run_uninterrupted(configs, tmp_path / "whole")
    source = random.Random(f"{method} {trials}")
    bits, killed = run_with_kills(
        configs, tmp_path / "killed", kills=kills, seconds=seconds, random_source=source
    )
    print(f"kills survived: {killed} ({method}, {trials} stacked)")
    assert killed >= least
    assert bits == whole
