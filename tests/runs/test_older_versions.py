"""A store and stopped runs of version 0.1 open, resume, and end as that version ended them.

The data was made with `remask run --benchmark split-digits --trials 2 --workers 1` (stacks of two):
finished cells with `--limit 20 --epochs 2`, and runs with `--limit 100 --epochs 3` that Ctrl-C
stopped between two steps. `finished.json` is what version 0.1 made of them itself.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import remask
from remask.config import TrialConfig
from remask.results import TrialRecord
from tests.arithmetic import arithmetic

DATA = Path(__file__).parents[1] / "data" / "version-0.1"
STOPPED = {"agem", "derpp", "fdr", "gem", "gss", "hal", "icarl", "lwf"}
ROUNDED_OTHERWISE = {"agem", "hal"}
"""They add gradients up in another order than version 0.1 did: the last digits differ."""
FINISHED: dict[str, Any] = json.loads((DATA / "finished.json").read_text("utf-8"))


@pytest.fixture
def older(tmp_path: Path) -> Iterator[remask.Store]:
    """A copy of what version 0.1 left."""
    shutil.copytree(DATA, tmp_path / "older")
    with remask.Store(tmp_path / "older" / "results.db") as store:
        yield store


def test_a_store_of_version_0_1_has_all_its_trials(older: remask.Store) -> None:
    expected = [trial for trial in FINISHED["trials"] if trial["config"]["epochs"] == 2]
    stored = {trial.config_hash: trial for trial in older.records()}
    assert len(stored) == len(expected) == 10
    for trial in expected:
        assert _shown(stored[trial["config_hash"]]) == _pinned(trial)


def test_nothing_that_version_0_1_finished_is_run_again(older: remask.Store) -> None:
    before = {trial.config_hash: trial.created for trial in older.records()}
    cells: dict[str, Any] = {
        "method": ["er", "mser", "derpp"],
        "buffer": 20,
        "trials": 2,
        "limit": 20,
        "epochs": 2,
    }
    results = remask.run("split-digits", store=older, workers=1, progress=False, **cells)
    assert len(results) == 6
    assert {trial.config_hash: trial.created for trial in older.records()} == before


@pytest.mark.thorough
def test_runs_that_version_0_1_left_unfinished_end_as_it_ended_them(older: remask.Store) -> None:
    begun = sorted(older.path.parent.glob("results.db.runs/*/*/checkpoint-*"))
    assert len(begun) == len(STOPPED)

    resumed = remask.resume(store=older, workers=1, progress=False)

    ended = {trial.config_hash: trial for results in resumed for trial in results}
    expected = [trial for trial in FINISHED["trials"] if trial["config"]["epochs"] == 3]
    assert {trial.config.method for trial in ended.values()} == STOPPED
    assert set(ended) == {trial["config_hash"] for trial in expected}
    same_arithmetic = arithmetic() == FINISHED["arithmetic"]
    for trial in expected:
        ours, theirs = _shown(ended[trial["config_hash"]]), _pinned(trial)
        if same_arithmetic:
            if trial["config"]["method"] in ROUNDED_OTHERWISE:
                assert ours["confidence"] == pytest.approx(theirs["confidence"], rel=1e-5)
                theirs["confidence"] = ours["confidence"]
            assert ours == theirs, trial["config"]["method"]
        else:  # another processor rounds otherwise, and a few samples fall on the other side
            last, pinned_last = ours["class_il"][-1], theirs["class_il"][-1]
            assert sum(last) / 5 == pytest.approx(sum(pinned_last) / 5, abs=10)
    assert not any(older.path.parent.glob("results.db.runs/*/run.json"))


def _shown(trial: TrialRecord) -> dict[str, Any]:
    return _pinned(trial.model_dump(mode="json"))


def _pinned(trial: dict[str, Any]) -> dict[str, Any]:
    names = ("status", "class_il", "task_il", "confidence", "tasks", "class_names")
    config = TrialConfig.model_validate(
        trial["config"]
    )  # settings that came later at their defaults
    return {"config": config, **{name: trial[name] for name in names}}
