"""How to run trials: what is refused, and how."""

import math
from typing import Any

import pytest

from remask.errors import SettingsError
from remask.experiments import RunOptions


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"workers": 0}, "workers = 0: must be at least 1"),
        ({"workers": "2"}, "workers = '2': must be a whole number"),
        ({"threads": 1.5}, "threads = 1.5: must be a whole number"),
        ({"threads": 4097}, "threads = 4097: must be at most 4096"),
        ({"stack": -1}, "stack = -1: must be at least 1"),
        (
            {"checkpoint_seconds": 0.0},
            "checkpoint_seconds = 0.0: must be at least 0.1",
        ),
        ({"checkpoint_seconds": math.nan}, "checkpoint_seconds = nan: must be"),
        ({"device": 3}, "device = 3: "),
        ({"worker": 2}, "worker = 2: Extra inputs are not permitted"),
        ({"address": "10.0.0.1:6379"}, "address is for a cluster: also set on='ray'"),
        ({"on": "slurm"}, "on = 'slurm': must be 'ray'"),
        ({"on": "ray", "gpus": 1.5}, "gpus = 1.5: use a fraction of 1, or a whole number"),
        ({"on": "ray", "cpus": 0.0}, "cpus = 0.0: must be greater than 0"),
        ({"on": "ray", "tries": 0}, "tries = 0: must be at least 1"),
        ({"on": "ray", "address": "ray://head:10001"}, "address = 'ray://head:10001': "),
    ],
)
def test_options_that_cannot_be_are_refused_by_name(given: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as refused:
        RunOptions(**given)
    assert str(refused.value).startswith(message)
