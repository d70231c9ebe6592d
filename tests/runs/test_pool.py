"""Worker processes that do not answer, and stops that cannot save everything."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from io import FileIO
from pathlib import Path

import pytest

from remask import durable
from remask.errors import Stopped
from remask.runs import Job, RunOptions, StopRequest, pool
from remask.runs.crew import Worker
from remask.runs.events import Event
from remask.runs.jobs import Work
from remask.runs.worker import Order
from tests.command_line import QUICK, CommandLine
from tests.results.store_samples import make_config

SLOW = """
import os, time
from pathlib import Path
def load():
    Path(os.environ["LOADING"]).touch()
    time.sleep(600)
"""


class OneJob:
    """An agenda of a single piece of work."""

    def __init__(self, work: Work) -> None:
        self._left = [work]

    def take(self) -> Work | Event | None:
        return self._left.pop() if self._left else None

    def is_empty(self) -> bool:
        return not self._left


def test_a_worker_that_does_not_listen_holds_up_nobody(tmp_path: Path) -> None:
    worker = Worker()
    try:
        os.kill(worker._process.pid, signal.SIGSTOP)
        # Far more than a pipe takes.
        job = Job(tuple(make_config(seed=seed) for seed in range(2000)))
        worker.give(Work(job, tmp_path), RunOptions())
        began = time.monotonic()
        assert worker.exchange() == []
        assert worker.unsent
        assert time.monotonic() - began < 5
        assert worker.exit_code is None
    finally:
        worker.end_now()
    assert worker.exit_code == -signal.SIGKILL


def test_a_worker_that_cannot_save_in_time_is_ended_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_data_of_mine.py").write_text(SLOW)
    loading = tmp_path / "loading"
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("LOADING", str(loading))
    monkeypatch.setattr(pool, "_SECONDS_TO_SAVE", 1.0)
    stop = StopRequest()

    def ask() -> None:
        while not loading.exists():
            time.sleep(0.05)
        stop.signal = signal.SIGTERM

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    job = Job((make_config(benchmark="slow_data_of_mine:load", seed=3),))
    work = OneJob(Work(job, tmp_path / "checkpoints"))
    with pytest.raises(Stopped) as caught:
        list(pool.run_jobs(work, workers=2, options=RunOptions(), stop=stop))
    assert len(caught.value.unsaved) == 1
    assert "ER on slow_data_of_mine:load, buffer 200, seed 3: not done" in caught.value.unsaved[0]


def test_a_stop_whose_checkpoint_the_disk_refuses_does_not_say_that_all_is_saved(
    remask: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = durable._create

    def refuse(path: Path) -> FileIO:
        if "checkpoint" in path.name:
            os.kill(os.getpid(), signal.SIGTERM)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return create(path)

    monkeypatch.setattr(durable, "_create", refuse)
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


def test_an_order_whose_giver_was_killed_is_not_begun(tmp_path: Path) -> None:
    order = Order(
        configs=(make_config(limit=20),),
        folder=tmp_path / "checkpoints",
        options=RunOptions(),
        path=(),
    )
    reader, writer = os.pipe()
    os.close(reader)
    worker = subprocess.run(
        [sys.executable, "-P", "-m", "remask.runs"],
        input=order.model_dump_json().encode() + b"\n",
        stdout=writer,
        timeout=60,
    )
    os.close(writer)
    assert worker.returncode == 1
    assert not order.folder.exists()
