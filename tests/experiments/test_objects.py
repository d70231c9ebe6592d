"""Benchmarks, methods and nets are given to `run` by name or as objects."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import remask
from remask import Method, Step
from remask import data as benchmarks
from remask.errors import SettingsError
from remask.experiments import RunOptions, plan_trials, settings
from remask.experiments.grids import grid_configs
from remask.methods import DERpp
from remask.nets.builders import mlp

SMALL: dict[str, Any] = {"trials": 1, "epochs": 1, "limit": 20, "buffer": 20, "workers": 1}
TRAINED: dict[str, Any] = {"lr": 0.1, "batch": 10, "replay_batch": 10}
CODE = """
import torch
from torch import nn
from remask import Method, Step

class MyMethod(Method):
    draws = 1
    title = "Mine"

    def loss(self, step: Step) -> torch.Tensor:
        return step.stream_loss()

class Net(nn.Sequential):
    def __init__(self, input_shape, num_classes):
        super().__init__(nn.Flatten(), nn.Linear(64, num_classes))

def build(input_shape, num_classes):
    return Net(input_shape, num_classes)
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    (tmp_path / "my_objects.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("REMASK_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    import my_objects  # type: ignore[import-not-found]

    yield my_objects
    del sys.modules["my_objects"]


def test_a_method_and_nets_are_given_as_objects(mine: Any, tmp_path: Path) -> None:
    store = tmp_path / "r.db"
    for net in (mine.Net, mine.build):
        results = remask.run(
            "split-digits", [mine.MyMethod, "er"], net=net, store=store, **(SMALL | TRAINED)
        )
        name = f"my_objects:{net.__name__}"
        assert [(r.config.method, r.config.net) for r in results] == [
            ("my_objects:MyMethod", name),
            ("er", name),
        ]


def test_progress_and_plans_use_the_title_of_a_method(
    mine: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    results = remask.run(
        "split-digits",
        mine.MyMethod,
        mask=-1.0,
        store=tmp_path / "r.db",
        progress=True,
        **(SMALL | TRAINED),
    )
    assert "MSMine(-1), buffer 20: 1 trial" in capfd.readouterr().err
    assert "MSMine(-1)" in str(results)
    configs = [record.config for record in results]
    (cell,) = plan_trials(None, configs, RunOptions(workers=1)).cells
    assert cell.label == "MSMine(-1)"


def test_objects_of_remask_have_their_names() -> None:
    config = settings("split-digits", DERpp, net=mlp)
    assert (config.method, config.net) == ("derpp", "mlp")


def test_a_benchmark_that_is_given_as_an_object_is_saved(mine: Any, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    inputs = random.normal(size=(80, 6)).astype(np.float32)
    data = benchmarks.arrays((inputs, np.arange(80) % 4), tasks=2, name="My flowers!")
    asked: dict[str, Any] = {"trials": 1, "epochs": 1, "buffer": 20, "workers": 1, **TRAINED}
    (record,) = remask.run(data, "er", store=tmp_path / "r.db", **asked)
    name = record.config.benchmark
    assert name.startswith("remask.data.benchmark:my_flowers_")
    loaded = remask.load_benchmark(name)
    assert torch.equal(loaded.train_inputs, data.train_inputs)
    assert (loaded.tasks, loaded.scale, loaded.mean) == (data.tasks, data.scale, data.mean)
    (file,) = (tmp_path / "data" / "own").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(benchmarks.DataError, match=r"is damaged\. Remove it"):
        remask.load_benchmark(name)


def test_a_benchmark_that_was_loaded_by_name_keeps_it(mine: Any, tmp_path: Path) -> None:
    digits = remask.load_benchmark("split-digits", tasks=2)
    config = settings(digits, "er")
    assert (config.benchmark, config.tasks) == ("split-digits", 2)
    changed = settings(replace(digits, scale=1 / 32), "er", buffer=8, epochs=1, **TRAINED)
    assert changed.benchmark.startswith("remask.data.benchmark:split_digits_")
    assert changed.tasks is None


def test_a_sweep_takes_objects(mine: Any) -> None:
    configs = grid_configs(
        {"epochs": 1, "trials": 1, "buffer": 20, "grid": {"method": [mine.MyMethod, DERpp]}},
        TRAINED,
        own_code=True,
    )
    assert [config.method for config in configs] == ["my_objects:MyMethod", "derpp"]


def test_objects_that_workers_cannot_import_are_refused() -> None:
    class Local(Method):
        def loss(self, step: Step) -> Tensor:
            return step.stream_loss()

    with pytest.raises(SettingsError, match="define it at the top level of a module"):
        remask.run("split-digits", Local)
    with pytest.raises(SettingsError, match="each trial builds its own net: give the class"):
        remask.run("split-digits", net=nn.Linear(64, 10))
