"""Runs whose workers, store, terminal or plan are disturbed end complete, or report it."""

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import remask
from remask.store import TrialRecord
from tests.runs.disturbances import Disturbed, rows

SMALL = (
    "run", "--benchmark", "split-digits", "--method", "er", "--epochs", "3", "--trials", "4",
    "--stack", "1", "--checkpoint-seconds", "0.1", "--workers", "2",
)  # fmt: skip
LONG = (*SMALL, "--epochs", "400", "--trials", "2")
"""Much longer than a test."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[TrialRecord]:
    """What SMALL stores if it is not disturbed."""
    store = tmp_path_factory.mktemp("whole") / "results.db"
    remask.run("split-digits", "er", epochs=3, trials=4, store=store, workers=1, progress=False)
    assert len(rows(store)) == 4
    return rows(store)


def begun(*args: str, store: Path, terminal: bool = False) -> Disturbed:
    """A run that has saved a checkpoint."""
    run = Disturbed(*args, store=store, terminal=terminal)
    run.wait_for_a_checkpoint()
    return run


def pause_and_stop(run: Disturbed) -> None:
    run.pause_workers()
    run.send(signal.SIGTERM)


def delete_its_folder_and_stop(run: Disturbed) -> None:
    run.delete_the_runs()
    run.send(signal.SIGTERM)


def sends(number: signal.Signals) -> Callable[[Disturbed], None]:
    return lambda run: run.send(number)


RETRY = "was killed, possibly out of memory; retrying"
FROM_CHECKPOINT = "retrying from the latest checkpoint"
SAVED = "everything is saved"
faults = pytest.mark.faults


@pytest.mark.processes
@pytest.mark.parametrize(
    ("disturb", "workers", "code", "message", "then"),
    [
        (Disturbed.kill_a_worker, "2", 0, RETRY, ()),
        pytest.param(Disturbed.kill_an_idle_worker, "2", 0, "was killed", (), marks=faults),
        pytest.param(Disturbed.kill_the_fork_server, "2", 0, FROM_CHECKPOINT, (), marks=faults),
        (sends(signal.SIGKILL), "2", -signal.SIGKILL, "", ("resume",)),
        (sends(signal.SIGTERM), "1", 143, SAVED, SMALL),
        pytest.param(sends(signal.SIGINT), "2", 130, SAVED, ("resume",), marks=faults),
        pytest.param(pause_and_stop, "2", 143, SAVED, ("resume",), marks=faults),
        pytest.param(delete_its_folder_and_stop, "2", 143, SAVED, ("resume",), marks=faults),
    ],
)
def test_a_disturbed_run_ends_or_continues_with_the_same_results(
    tmp_path: Path,
    whole: list[TrialRecord],
    disturb: Callable[[Disturbed], object],
    workers: str,
    code: int,
    message: str,
    then: tuple[str, ...],
) -> None:
    run = begun(*SMALL, "--workers", workers, store=tmp_path / "results.db")
    disturb(run)
    said = run.end(code)
    assert message in said
    assert "Traceback" not in said
    if code:  # orphaned workers end by themselves; the new ones wait for their locks
        Disturbed(*then, "--workers", workers, store=run.store).end(0)
    assert rows(run.store) == whole


@pytest.mark.processes
def test_a_job_that_costs_three_workers_is_given_up_and_named(tmp_path: Path) -> None:
    run = Disturbed(*LONG, "--stack", "2", "--mask", "none,-1", store=tmp_path / "results.db")
    dead: set[int] = set()
    for _ in range(6):  # three for each of the two jobs
        run.wait(lambda: bool(set(run.workers()) - dead), "replaced a worker")
        dead.add(run.kill_a_worker(but=dead))
    said = run.end(1)
    assert "MSER(-1) on split-digits, buffer 20, seeds 0, 1: the worker process was killed" in said
    assert "the last of 3 tries" in said


@pytest.mark.faults
@pytest.mark.processes
def test_a_refused_command_leaves_the_plan_of_a_living_run_alone(tmp_path: Path) -> None:
    command = (*SMALL, "--stack", "4", "--workers", "1", "--epochs", "100")
    run = begun(*command, store=tmp_path / "results.db")
    (plan,) = tmp_path.glob("*.runs/*/run.json")
    before = plan.read_bytes()
    said = Disturbed(*command, "--stack", "2", store=run.store).end(1)
    assert f"held by process {run.process.pid}" in said
    assert plan.read_bytes() == before
    run.kill_everything()
    run.output()
    assert plan.read_bytes() == before


@pytest.mark.faults
@pytest.mark.parametrize(
    ("lose", "workers"), [(Disturbed.delete_the_store, "2"), (Disturbed.replace_the_store, "1")]
)
def test_a_store_that_goes_away_stops_the_run_and_nothing_is_lost(
    tmp_path: Path, whole: list[TrialRecord], lose: Callable[[Disturbed], None], workers: str
) -> None:
    command = (*SMALL, "--workers", workers)
    run = Disturbed(*command, store=tmp_path / "results.db")
    run.wait_for_trials(2)
    lose(run)
    said = run.end(1)
    assert f"{run.store} was moved, removed or replaced" in said
    (kept,) = tmp_path.glob("results.db.rescued-*.json")
    assert f"`remask results import {kept} --store {run.store}`" in said
    assert 2 <= len(json.loads(kept.read_text())["trials"]) <= 4
    Disturbed("results", "import", str(kept), store=run.store).end(0)
    Disturbed(*command, store=run.store).end(0)
    assert rows(run.store) == whole


@pytest.mark.processes
def test_a_closed_terminal_saves_and_stops(tmp_path: Path) -> None:
    run = begun(*LONG, store=tmp_path / "results.db", terminal=True)
    run.close_the_terminal()
    run.end(128 + signal.SIGHUP)
    assert len({path.parent for path in run.checkpoints()}) == 2


@pytest.mark.faults
def test_a_run_whose_outputs_nobody_reads_stores_its_results_all_the_same(
    tmp_path: Path, whole: list[TrialRecord]
) -> None:
    run = Disturbed(*SMALL, "--output", str(tmp_path / "out.json"), store=tmp_path / "results.db")
    run.leave()
    run.process.wait(timeout=120)
    assert rows(run.store) == whole
    assert len(json.loads((tmp_path / "out.json").read_text())["trials"]) == 4


@pytest.mark.faults
@pytest.mark.processes
def test_a_second_ctrl_c_exits_at_once(tmp_path: Path) -> None:
    run = begun(*LONG, "--workers", "1", store=tmp_path / "results.db")
    run.send(signal.SIGINT)
    run.send(signal.SIGINT)
    run.end(130, seconds=30)
