"""Executors: what each must do, workers that do not answer, stops that cannot save everything."""

import errno
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Sequence
from io import FileIO
from pathlib import Path
from typing import cast

import pytest

import remask as public
from remask import files
from remask.config import TrialConfig
from remask.errors import Stopped
from remask.experiments import (
    Executor,
    JobQueue,
    RunOptions,
    ThisProcess,
    WorkerProcesses,
    executors,
)
from remask.experiments.configs import trial_configs
from remask.experiments.jobs import (
    Advanced,
    Event,
    Failed,
    Finished,
    Job,
    Lost,
    Note,
    Run,
    Work,
    unfinished_runs,
)
from remask.experiments.running import continue_run, plan_run
from remask.experiments.train import run_job
from remask.machine import StopRequest
from remask.store import Store
from tests.command_line import QUICK, CommandLine
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
    """One of the user's own, which loses some jobs before it gets to run them."""

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


def _configs(trials: int = 4, epochs: int = 1) -> list[TrialConfig]:
    return trial_configs(
        benchmark="split-digits",
        method="er",
        seeds=range(trials),
        overrides={"limit": 20, "epochs": epochs},
    )


def _planned(store: Store, configs: Sequence[TrialConfig] | None = None) -> Run:
    """Two jobs."""
    configs = configs or _configs()
    run = plan_run(store, configs, workers=2, largest_stack=lambda _: 2, again=False)
    assert run is not None
    return run


def _shown(store: Store) -> list[object]:
    return [(r.config, r.class_il, r.task_il, r.confidence) for r in store.records()]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    """What the trials show, one after the other, each by itself."""
    with Store(tmp_path_factory.mktemp("expected") / "results.db") as store:
        public.run(configs=_configs(), store=store, workers=1, stack=1, progress=False)
        return _shown(store)


LONG = _configs(trials=2, epochs=50)  # long enough for a stop to arrive in time


@pytest.fixture(scope="module")
def long_expected(tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    with Store(tmp_path_factory.mktemp("expected") / "results.db") as store:
        public.run(configs=LONG, store=store, workers=1, progress=False)
        return _shown(store)


EXECUTORS: dict[str, Callable[[], Executor]] = {
    "this process": ThisProcess,
    "worker processes": lambda: WorkerProcesses(2),
    "own": WithoutCheckpoints,
}


@pytest.mark.processes
@pytest.mark.parametrize("name", EXECUTORS)
def test_every_executor_gives_the_same_bits(
    name: str, tmp_path: Path, expected: list[object]
) -> None:
    with Store(tmp_path / "results.db") as store:
        run = _planned(store)
        events = list(continue_run(store, run, RunOptions(), StopRequest(), EXECUTORS[name]()))
        assert _shown(store) == expected
    assert {e.job for e in events if isinstance(e, Finished)} == {job.name for job in run.jobs}
    assert any(isinstance(event, Advanced) for event in events)
    assert unfinished_runs(tmp_path / "results.db") == []


@pytest.mark.processes
@pytest.mark.parametrize("name", EXECUTORS)
def test_every_executor_can_be_stopped_and_gone_on_from(
    name: str, tmp_path: Path, long_expected: list[object]
) -> None:
    stop = StopRequest()
    with Store(tmp_path / "results.db") as store:
        run = _planned(store, LONG)
        with pytest.raises(Stopped) as caught:  # noqa: PT012
            for event in continue_run(store, run, RunOptions(), stop, EXECUTORS[name]()):
                if isinstance(event, Advanced):
                    stop.signal = signal.SIGINT
        assert caught.value.exit_code == 130
        assert caught.value.unsaved == []
        (run,) = unfinished_runs(store.path)
        assert any(run.folder.glob("*/checkpoint-*")) == (name != "own")
        for _ in continue_run(store, run, RunOptions(), StopRequest(), EXECUTORS[name]()):
            pass
        assert _shown(store) == long_expected


@pytest.mark.processes
@pytest.mark.parametrize("name", EXECUTORS)
def test_every_executor_reports_a_job_that_cannot_be_run_and_goes_on(
    name: str, tmp_path: Path
) -> None:
    broken = _configs(1)[0].model_copy(update={"benchmark": "no_module_of_mine:load"})
    with Store(tmp_path / "results.db") as store:
        configs = [broken, *_configs(2)]
        run = plan_run(store, configs, workers=2, largest_stack=lambda _: 1, again=False)
        assert run is not None
        events = list(continue_run(store, run, RunOptions(), StopRequest(), EXECUTORS[name]()))
        (failed,) = (event for event in events if isinstance(event, Failed))
        assert failed.job == Job((broken,)).name
        assert "no_module_of_mine" in failed.error
        assert store.count({"status": "finished"}) == 2


def test_a_lost_job_is_handed_out_again_and_given_up_after_the_third_loss(tmp_path: Path) -> None:
    with Store(tmp_path / "results.db") as store:
        run, twice, thrice = _planned(store), WithoutCheckpoints(2), WithoutCheckpoints(3)
        events = list(continue_run(store, run, RunOptions(), StopRequest(), twice))
        notes = [event.text for event in events if isinstance(event, Note)]
        said = "the machine was unplugged; retrying from the latest checkpoint"
        assert notes == [f"ER on split-digits, buffer 20, seeds 0, 1: {said}"] * 2
        assert store.count() == 4
        store.delete([record.config_hash for record in store.records()])
        events = list(continue_run(store, _planned(store), RunOptions(), StopRequest(), thrice))
        (failed,) = (event for event in events if isinstance(event, Failed))
        assert failed.error.startswith("the machine was unplugged, the last of 3 tries")
        assert store.count({"status": "finished"}) == 2


def test_a_run_takes_an_executor_of_the_users_own(
    tmp_path: Path, expected: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remask.machine.free_memory", lambda: 0)  # it runs elsewhere
    own = WithoutCheckpoints()
    with Store(tmp_path / "results.db") as store:
        public.run(configs=_configs(), store=store, stack=2, progress=False, executor=own)
        assert _shown(store) == expected
    assert own.jobs == 2


def _two_jobs(configs: Sequence[TrialConfig], folder: Path) -> JobQueue:
    work = [Work(Job((config,)), folder / str(config.seed)) for config in configs]
    return cast("JobQueue", Jobs(*work))


@pytest.mark.processes
def test_workers_end_with_the_generator_that_started_them(tmp_path: Path) -> None:
    events = WorkerProcesses(2).run(_two_jobs(_configs(2), tmp_path), RunOptions(), StopRequest())
    assert isinstance(next(events), Advanced)
    workers = multiprocessing.active_children()
    assert len(workers) == 2
    events.close()
    assert not any(worker.is_alive() for worker in workers)


@pytest.mark.processes
def test_a_worker_that_cannot_save_in_time_is_killed_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_data_of_mine.py").write_text(SLOW)
    loading = tmp_path / "loading"
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("LOADING", str(loading))
    monkeypatch.setattr(executors, "_SECONDS_TO_SAVE", 1.0)
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


def test_sweeps_and_resumed_runs_take_an_executor(tmp_path: Path) -> None:
    grid = {"benchmark": "split-digits", "limit": 20, "epochs": 1, "grid": {"buffer": [10, 30]}}
    sweeping, resuming = WithoutCheckpoints(), WithoutCheckpoints()
    with Store(tmp_path / "results.db") as store:
        public.sweep(grid, trials=1, store=store, executor=sweeping, workers=1, progress=False)
        _planned(store)
        public.resume(store=store, executor=resuming, workers=1, progress=False)
        assert store.count() == 2 + 4
    assert (sweeping.jobs, resuming.jobs) == (2, 2)
