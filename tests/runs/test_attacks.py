"""Attacks on stores, runs and learners: kills at every call, reused process ids.

Each attack is one test, and each thing that can be attacked is one `Target`. `make test-faults`
runs all of them; `python -m tests.runs.soak` mixes the attacks on runs with everything else.
"""

import os
import secrets
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from remask import files
from remask.experiments import RunOptions
from remask.experiments.jobs import Advanced, plan_run
from remask.files import Lock
from remask.learner import Learner
from remask.store import Store, TrialRecord
from tests.learner.samples import blobs, create
from tests.runs.faults import filled, reopened, save, state, version_of
from tests.runs.killed_calls import CAN_TRACE, kill_at
from tests.runs.run_samples import events_of, planned, small, stop_when
from tests.store.store_samples import make_config, make_record

pytestmark = [pytest.mark.faults, pytest.mark.processes]
CONFIGS = small(1)
OFTEN = RunOptions().model_copy(update={"checkpoint_seconds": 0.001})


@dataclass(frozen=True)
class Target:
    """Something on disk that can be attacked."""

    prepare: Callable[[Path], object]
    """Make its state before the attack in an empty folder."""
    change: Callable[[Path], object]
    """The work that is attacked; doing it again finishes it."""
    read: Callable[[Path], object]
    """What it shows, complete or not; raises a RemaskError if it is damaged."""
    most: int = 400
    """How many attacks are enough."""


# ---- Targets ------------------------------------------------------------------------------------


def _add_trials(folder: Path) -> None:
    with Store(folder / "results.db") as store:
        for seed in range(3):
            store.add(make_record(make_config(seed=seed)))


def _stored(folder: Path) -> list[TrialRecord]:
    if not (folder / "results.db").exists():
        return []
    with Store(folder / "results.db") as store:
        return list(store.records())


def _trials(folder: Path) -> dict[str, str]:
    return {record.config_hash: record.model_dump_json() for record in _stored(folder)}


def _save(folder: Path) -> None:
    checkpoints = reopened(folder / "job")
    checkpoints.load(state(0))
    save(checkpoints, 4)


def _version(folder: Path) -> dict[str, str]:
    """Empty before the new version is saved."""
    version = version_of(reopened(folder / "job").load(state(0)))
    assert version in (3, 4)
    return {"version": "4"} if version == 4 else {}


def _stop_a_run(folder: Path) -> None:
    """Leave a plan and checkpoints."""
    with Store(folder / "results.db") as store:
        run = planned(store, CONFIGS)
        is_late = lambda e: isinstance(e, Advanced) and e.steps_done > 10  # noqa: E731
        stop_when(is_late, signal.SIGTERM, store, run, options=OFTEN)
    assert len(list(folder.rglob("checkpoint-*"))) == 2


def _run(folder: Path) -> None:
    with Store(folder / "results.db") as store:
        run = plan_run(store, CONFIGS, workers=1, largest_stack=lambda _: 1, again=False)
        if run is not None:
            for _ in events_of(store, run, options=OFTEN):
                pass


def _accuracies(folder: Path) -> dict[str, str]:
    return {r.config_hash: str((r.class_il, r.confidence)) for r in _stored(folder)}


def _start_learner(folder: Path) -> None:
    create(folder / "learner").learn(*blobs(["ant", "bee"], each=8), name="first")


def _learn(folder: Path) -> None:
    learner = Learner.open(folder / "learner")
    learner.learn(*blobs(["cat", "dog"], each=8, seed=1), name="second")


def _answers(folder: Path) -> dict[str, str]:
    inputs = np.concatenate([blobs([name], each=2, seed=5)[0] for name in ("ant", "bee", "cat")])
    learner = Learner.open(folder / "learner")
    found = learner.predict(inputs)
    return {"classes": str(learner.classes), "labels": str([one.name for one in found])}


TARGETS = {
    "a new store": Target(lambda _: None, _add_trials, _trials),
    "a store": Target(_add_trials, _add_trials, _trials),
    "checkpoints": Target(lambda folder: filled(folder / "job"), _save, _version),
    "a run": Target(lambda _: None, _run, _accuracies, most=60),
    "a stopped run": Target(_stop_a_run, _run, _accuracies, most=60),
    "a learner": Target(_start_learner, _learn, _answers, most=40),
}
needs_tracing = pytest.mark.skipif(
    not CAN_TRACE, reason="system calls are traced on Linux on x86-64 only"
)
each_target = pytest.mark.parametrize("name", TARGETS)


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each target before the attack, and after its work was done undisturbed."""
    made: dict[str, Path] = {}
    for name, target in TARGETS.items():
        before = tmp_path_factory.mktemp("before")
        target.prepare(before)
        after = tmp_path_factory.mktemp("after")
        shutil.copytree(before, after, dirs_exist_ok=True)
        target.change(after)
        made |= {f"{name} before": before, f"{name} after": after}
    return made


# ---- Attacks ------------------------------------------------------------------------------------


@needs_tracing
@each_target
def test_a_kill_at_any_call_that_changes_a_file_loses_nothing(
    name: str, templates: dict[str, Path], tmp_path: Path
) -> None:
    target, before = TARGETS[name], templates[f"{name} before"]
    after = target.read(templates[f"{name} after"])
    calls = kill_at(None, partial(target.change, copy_of(before, tmp_path / "whole")))
    killed = range(0, calls, -(-calls // target.most))
    for call in killed:
        folder = copy_of(before, tmp_path / str(call))
        kill_at(call, partial(target.change, folder))
        found, where = target.read(folder), f"killed at call {call} of {calls}"
        assert found == target.read(before) or is_part(found, after), where
        target.change(folder)
        assert target.read(folder) == after, where
        shutil.rmtree(folder)
    print(f"{name}: killed at {len(killed)} of {calls} calls")
    assert len(killed) >= 5


def copy_of(folder: Path, place: Path) -> Path:
    return Path(shutil.copytree(folder, place))


def is_part(found: object, whole: object) -> bool:
    assert isinstance(found, dict)
    assert isinstance(whole, dict)
    return found.items() <= whole.items()


def test_what_a_dead_process_of_the_same_pid_left_is_no_obstacle_and_goes(tmp_path: Path) -> None:
    """As in containers, where each process may have the id 1."""
    filled(tmp_path / "job")
    stale = tmp_path / "job" / f".old.{files._HOST}-{os.getpid()}-{secrets.token_hex(8)}.tmp"
    stale.write_bytes(b"private")
    note = tmp_path / "job" / "lock.owner.json"
    note.write_text(f'{{"pid": {os.getpid()}, "host": "h", "command": "dead", "since": 0}}')
    with Lock(tmp_path / "job" / "lock"):
        assert "dead" not in note.read_text()
        _save(tmp_path)
    assert version_of(reopened(tmp_path / "job").load(state(0))) == 4
    assert not stale.exists()
