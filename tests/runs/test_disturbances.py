"""A run whose workers, store, terminal or plan somebody has been at ends whole, or says so."""

import json
import os
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
"""Much longer than anybody waits."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[TrialRecord]:
    """What SMALL stores if it is not disturbed."""
    store = tmp_path_factory.mktemp("whole") / "results.db"
    remask.run("split-digits", "er", epochs=3, trials=4, store=store, workers=1, progress=False)
    assert len(rows(store)) == 4
    return rows(store)


@pytest.mark.faults
@pytest.mark.parametrize("times", [1, pytest.param(8, marks=pytest.mark.faults)])
def test_a_worker_that_dies_between_two_jobs_is_replaced(
    tmp_path: Path, whole: list[TrialRecord], times: int
) -> None:
    for number in range(times):
        run = Disturbed(*SMALL, store=tmp_path / f"{number}.db")
        run.wait_for_trials(1)
        run.kill_a_worker_behind_its_back()
        assert "was killed" in run.end(0)
        assert rows(run.store) == whole


@pytest.mark.processes
def test_a_worker_that_dies_at_work_is_replaced_and_its_job_goes_on(
    tmp_path: Path, whole: list[TrialRecord]
) -> None:
    run = Disturbed(*SMALL, store=tmp_path / "results.db")
    run.wait_for_a_checkpoint()
    run.kill_a_worker()
    assert "was killed, possibly out of memory; retrying" in run.end(0)
    assert rows(run.store) == whole


@pytest.mark.faults
@pytest.mark.processes
def test_workers_whose_fork_server_dies_are_replaced_by_new_ones(
    tmp_path: Path, whole: list[TrialRecord]
) -> None:
    run = Disturbed(*SMALL, store=tmp_path / "results.db")
    run.wait_for_a_checkpoint()
    server = run.fork_server()
    assert server is not None
    os.kill(server, signal.SIGKILL)
    assert "retrying from the latest checkpoint" in run.end(0)
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
def test_workers_that_were_paused_are_woken_to_save_when_the_run_is_stopped(
    tmp_path: Path,
) -> None:
    run = Disturbed(*LONG, store=tmp_path / "results.db")
    run.wait_for_a_checkpoint()
    run.pause_workers()
    run.send(signal.SIGTERM)
    assert "everything is saved" in run.end(143, seconds=50)
    assert len({path.parent for path in run.checkpoints()}) == 2


@pytest.mark.faults
@pytest.mark.processes
def test_a_refused_command_leaves_the_plan_of_a_living_run_alone(tmp_path: Path) -> None:
    command = (*SMALL, "--stack", "4", "--workers", "1", "--epochs", "100")
    run = Disturbed(*command, store=tmp_path / "results.db")
    run.wait_for_a_checkpoint()
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


@pytest.mark.faults
def test_a_run_whose_folder_is_deleted_goes_on_and_can_still_be_resumed(
    tmp_path: Path, whole: list[TrialRecord]
) -> None:
    run = Disturbed(*SMALL, store=tmp_path / "results.db")
    run.wait_for_a_checkpoint()
    run.delete_the_runs()
    run.send(signal.SIGTERM)
    assert "everything is saved" in run.end(143)
    Disturbed("resume", "--workers", "2", store=run.store).end(0)
    assert rows(run.store) == whole


@pytest.mark.processes
def test_a_closed_terminal_saves_and_stops(tmp_path: Path) -> None:
    run = Disturbed(*LONG, store=tmp_path / "results.db", terminal=True)
    run.wait_for_a_checkpoint()
    run.close_the_terminal()
    run.process.wait(timeout=60)
    assert run.process.returncode == 128 + signal.SIGHUP
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


@pytest.mark.processes
@pytest.mark.parametrize(
    ("workers", "number", "code"),
    [
        ("1", signal.SIGTERM, 143),
        pytest.param("2", signal.SIGINT, 130, marks=pytest.mark.faults),
        pytest.param("2", signal.SIGKILL, -9, marks=pytest.mark.faults),
    ],
)
def test_a_signal_loses_nothing_and_resume_or_the_same_command_goes_on(
    tmp_path: Path, whole: list[TrialRecord], workers: str, number: signal.Signals, code: int
) -> None:
    run = Disturbed(*SMALL, "--workers", workers, store=tmp_path / "results.db")
    run.wait_for_a_checkpoint()
    run.send(number)
    said = run.end(code)
    assert ("everything is saved" in said) == (number != signal.SIGKILL)
    assert "Traceback" not in said
    # Orphaned workers end by themselves; the new ones wait for them to let go.
    command = SMALL if number == signal.SIGTERM else ("resume",)
    Disturbed(*command, "--workers", workers, store=run.store).end(0)
    assert rows(run.store) == whole


@pytest.mark.faults
@pytest.mark.processes
def test_a_second_ctrl_c_exits_at_once(tmp_path: Path) -> None:
    run = Disturbed(*LONG, "--workers", "1", store=tmp_path / "results.db")
    run.wait_for_a_checkpoint()
    run.send(signal.SIGINT)
    run.send(signal.SIGINT)
    run.end(130, seconds=30)
