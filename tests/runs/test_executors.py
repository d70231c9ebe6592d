"""Executors: each gives the same bits for every feature; stops and losses are reported."""

import errno
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Sequence
from io import FileIO
from pathlib import Path
from typing import Any, cast

import pytest

import remask as public
from remask import files
from remask.config import TrialConfig
from remask.experiments import (
    Executor,
    JobQueue,
    RunOptions,
    ThisProcess,
    WorkerProcesses,
    executors,
)
from remask.experiments.jobs import (
    Advanced,
    Event,
    Failed,
    Finished,
    Job,
    Lost,
    Note,
    Work,
    unfinished_runs,
)
from remask.experiments.train import run_job
from remask.machine import StopRequest
from remask.store import Store
from tests.command_line import QUICK, CommandLine
from tests.runs.run_samples import events_of, planned, run_here, shown, small, stop_when
from tests.store.store_samples import make_config

SLOW = """
import os, time
from pathlib import Path
def load():
    Path(os.environ["LOADING"]).touch()
    time.sleep(600)
"""


class Jobs:
    """A queue of jobs without a run."""

    def __init__(self, *work: Work) -> None:
        self._left = list(work)

    def take(self) -> Work | Event | None:
        return self._left.pop() if self._left else None

    def __len__(self) -> int:
        return len(self._left)


class WithoutCheckpoints(Executor):
    """A user's own executor, which loses some jobs before it runs them."""

    on_this_machine = False

    def __init__(self, losses: int = 0) -> None:
        self._losses = losses
        self.jobs = 0

    def run(self, queue: JobQueue, options: RunOptions, stop: StopRequest) -> Generator[Event]:
        while stop.signal is None and len(queue):
            taken = queue.take()
            if not isinstance(taken, Work):
                if taken is not None:
                    yield taken
            elif self._losses:
                self._losses -= 1
                yield Lost(taken.job.name, "the machine was unplugged")
            else:
                self.jobs += 1
                yield from run_job(taken.job, None, options, stop)


EXECUTORS: dict[str, Callable[[], Executor]] = {
    "this process": ThisProcess,
    "worker processes": lambda: WorkerProcesses(2),
    "own": WithoutCheckpoints,
}
FEATURES: dict[str, dict[str, Any]] = {
    "masks": {"masks": [None, -1.0, float("-inf")], "seeds": 1},
    "stored logits": {"method": "derpp", "masks": [None, -1.0]},
    "own memory": {"method": "gem", "buffer": 20},
    "merging": {"memory": "merging"},
    "a chosen mask": {"masks": ["auto"], "validation": 0.2},
    "accuracy within tasks": {"evaluate_every": 3},
}
WAYS = {
    "stacked": (ThisProcess, 4, False),
    "resumed": (ThisProcess, 4, True),
    "other processes": (EXECUTORS["worker processes"], 1, False),
    "resumed in other processes": (EXECUTORS["worker processes"], 2, True),
}


@pytest.mark.processes
@pytest.mark.parametrize("feature", FEATURES)
def test_every_feature_gives_the_same_bits_in_every_way(feature: str, tmp_path: Path) -> None:
    configs = small(**{"seeds": 2, "epochs": 2, **FEATURES[feature]})
    expected = run_here(tmp_path, configs)
    for way, (executor, stack, is_stopped) in WAYS.items():
        with Store(tmp_path / f"{way}.db") as store:
            run = planned(store, configs, stack, workers=2)
            if is_stopped:
                stop_when(lambda e: isinstance(e, Advanced), signal.SIGINT, store, run, executor())
                (run,) = unfinished_runs(store.path)
            for _ in events_of(store, run, executor()):
                pass
            assert shown(store) == expected, way


@pytest.mark.processes
@pytest.mark.parametrize("name", EXECUTORS)
def test_every_executor_can_be_stopped_and_continued(name: str, tmp_path: Path) -> None:
    configs = small(2, epochs=50)  # long enough for a stop to arrive in time
    with Store(tmp_path / "results.db") as store:
        run = planned(store, configs, workers=2)
        caught = stop_when(
            lambda e: isinstance(e, Advanced), signal.SIGINT, store, run, EXECUTORS[name]()
        )
        assert (caught.exit_code, caught.unsaved) == (130, [])
        (run,) = unfinished_runs(store.path)
        assert any(run.folder.glob("*/checkpoint-*")) == (name != "own")
        events = list(events_of(store, run, EXECUTORS[name]()))
        assert {e.job for e in events if isinstance(e, Finished)} <= {job.name for job in run.jobs}
        assert shown(store) == run_here(tmp_path, configs)
        assert unfinished_runs(store.path) == []


@pytest.mark.processes
@pytest.mark.parametrize("name", EXECUTORS)
def test_every_executor_reports_a_job_that_cannot_be_run_and_goes_on(
    name: str, tmp_path: Path
) -> None:
    broken = small(1)[0].model_copy(update={"benchmark": "no_module_of_mine:load"})
    with Store(tmp_path / "results.db") as store:
        run = planned(store, [broken, *small(2)], workers=2)
        events = list(events_of(store, run, EXECUTORS[name]()))
        (failed,) = (event for event in events if isinstance(event, Failed))
        assert failed.job == Job((broken,)).name
        assert "no_module_of_mine" in failed.error
        assert store.count({"status": "finished"}) == 2


def test_a_lost_job_is_handed_out_again_and_given_up_after_the_third_loss(tmp_path: Path) -> None:
    with Store(tmp_path / "results.db") as store:
        twice, thrice = WithoutCheckpoints(2), WithoutCheckpoints(3)
        events = list(events_of(store, planned(store, small(), stack=2), twice))
        notes = [event.text for event in events if isinstance(event, Note)]
        said = "the machine was unplugged; retrying from the latest checkpoint"
        assert notes == [f"ER on split-digits, buffer 20, seeds 0, 1: {said}"] * 2
        assert store.count() == 4
        store.delete([record.config_hash for record in store.records()])
        events = list(events_of(store, planned(store, small(), stack=2), thrice))
        (failed,) = (event for event in events if isinstance(event, Failed))
        assert failed.error.startswith("the machine was unplugged, the last of 3 tries")
        assert store.count({"status": "finished"}) == 2


def test_run_sweep_and_resume_take_an_executor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run_here(tmp_path, small())
    monkeypatch.setattr("remask.machine.free_memory", lambda: 0)  # it runs elsewhere
    grid = {"benchmark": "split-digits", "limit": 20, "epochs": 1, "grid": {"buffer": [10, 30]}}
    running, sweeping, resuming = (WithoutCheckpoints() for _ in range(3))
    with Store(tmp_path / "results.db") as store:
        public.run(configs=small(), store=store, stack=2, progress=False, executor=running)
        assert shown(store) == expected
        public.sweep(grid, trials=1, store=store, executor=sweeping, workers=1, progress=False)
        planned(store, small([7, 8]))
        public.resume(store=store, executor=resuming, workers=1, progress=False)
        assert store.count() == 4 + 2 + 2
    assert (running.jobs, sweeping.jobs, resuming.jobs) == (2, 2, 2)


def _two_jobs(configs: Sequence[TrialConfig], folder: Path) -> JobQueue:
    work = [Work(Job((config,)), folder / str(config.seed)) for config in configs]
    return cast("JobQueue", Jobs(*work))


@pytest.mark.processes
def test_workers_end_with_the_generator_that_started_them(tmp_path: Path) -> None:
    events = WorkerProcesses(2).run(_two_jobs(small(2), tmp_path), RunOptions(), StopRequest())
    assert isinstance(next(events), Advanced)
    processes = multiprocessing.active_children()
    assert len(processes) == 2
    events.close()
    assert not any(process.is_alive() for process in processes)


@pytest.mark.processes
def test_a_worker_that_cannot_save_in_time_is_killed_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_data_of_mine.py").write_text(SLOW)
    loading = tmp_path / "loading"
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("LOADING", str(loading))
    monkeypatch.setattr(executors, "SECONDS_TO_SAVE", 1.0)
    stop = StopRequest()

    def ask() -> None:
        while not loading.exists():
            time.sleep(0.05)
        stop.signal = signal.SIGTERM

    threading.Thread(target=ask, daemon=True).start()
    configs = [make_config(benchmark="slow_data_of_mine:load", seed=seed) for seed in (3, 4)]
    events = WorkerProcesses(2).run(_two_jobs(configs, tmp_path), RunOptions(), stop)
    expected = {Lost(Job((c,)).name, "not saved within 1 s, and killed") for c in configs}
    assert set(events) == expected


def test_a_stop_whose_checkpoint_the_disk_refuses_does_not_say_that_all_is_saved(
    remask: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = files._create

    def refuse(path: Path, mode: int) -> FileIO:
        if "checkpoint" in path.name:
            os.kill(os.getpid(), signal.SIGTERM)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return create(path, mode)

    monkeypatch.setattr(files, "_create", refuse)
    answer = remask("run", *QUICK, "--workers", "1")
    assert answer.code == 143
    assert "stopped by SIGTERM, but not everything could be saved" in answer.text
    assert "ER on split-digits, buffer 20, seeds 0, 1: cannot write" in answer.text
    assert "everything is saved" not in answer.text


def test_the_end_of_a_terminal_is_a_stop_unless_it_was_to_be_ignored() -> None:
    before = signal.getsignal(signal.SIGHUP)
    try:
        for handler, noted in ((signal.SIG_DFL, signal.SIGHUP), (signal.SIG_IGN, None)):
            signal.signal(signal.SIGHUP, handler)
            with StopRequest() as stop:
                os.kill(os.getpid(), signal.SIGHUP)
                assert stop.signal == noted
            assert signal.getsignal(signal.SIGHUP) == handler
    finally:
        signal.signal(signal.SIGHUP, before)
