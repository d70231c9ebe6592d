"""Runs of the command line, and what can happen to them while they go on.

Each method of `AnyRun` is one disturbance, so that tests can mix them as they like.
"""

import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from remask.store import Store, TrialRecord
from tests.runs.forked import ForkedRemask

_PATIENCE = 120.0


class AnyRun:
    """A run of the command line in a process, and what can be done to it."""

    def __init__(self, process: "subprocess.Popen[str] | ForkedRemask", store: Path) -> None:
        self.process = process
        self.store = store

    def wait_for_a_checkpoint(self) -> None:
        self.wait(lambda: any(self.checkpoints()), "saved a checkpoint")

    def wait_for_trials(self, number: int) -> None:
        def stored() -> int:
            return len(rows(self.store)) if self.store.exists() else 0

        self.wait(lambda: stored() >= number, f"stored {number} trials")

    def wait(self, happened: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _PATIENCE
        while not happened():
            if self.process.poll() is not None:
                raise AssertionError(f"it ended, and never {what}: {self.output()}")
            assert time.monotonic() < deadline, f"it never {what}"
            time.sleep(0.02)

    def output(self, seconds: float = _PATIENCE) -> str:
        """What it has said on standard error, once it has ended."""
        return self.process.communicate(timeout=seconds)[1]

    def checkpoints(self) -> list[Path]:
        return list(self.store.parent.glob("*.runs/*/*/checkpoint-*"))

    def workers(self) -> list[int]:
        """The ids of its worker processes, oldest first."""
        return children_of(self.fork_server())

    def fork_server(self) -> int | None:
        """The id of the process that workers are forked from, if there is one."""
        children = children_of(self.process.pid)
        return next((pid for pid in children if "forkserver" in command_of(pid)), None)

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill_a_worker(self, *, but: Collection[int] = ()) -> int:
        """Kill the oldest worker that is not among these; gives its id."""
        worker = next(worker for worker in self.workers() if worker not in but)
        _signal(worker, signal.SIGKILL)
        return worker

    def kill_the_fork_server(self) -> None:
        server = self.fork_server()
        assert server is not None
        _signal(server, signal.SIGKILL)

    def pause_workers(self) -> None:
        for worker in self.workers():
            _signal(worker, signal.SIGSTOP)

    def wake_workers(self) -> None:
        for worker in self.workers():
            _signal(worker, signal.SIGCONT)

    def kill_an_idle_worker(self) -> None:
        """Kill a worker while its parent cannot see what it has finished meanwhile."""
        self.wait_for_trials(1)
        self.send(signal.SIGSTOP)
        try:
            time.sleep(1.0)  # a short job ends in that time, and the worker is idle
            self.kill_a_worker()
        finally:
            self.send(signal.SIGCONT)

    def delete_the_store(self) -> None:
        for path in self.store.parent.glob(f"{self.store.name}*"):
            if path.is_file():
                path.unlink()

    def replace_the_store(self) -> None:
        """Put another store in its place, as somebody who restores a backup might."""
        other = self.store.with_name("other.db")
        Store(other).close()
        other.replace(self.store)

    def delete_the_runs(self) -> None:
        """Remove the plans and checkpoints of all runs, as far as nobody makes them anew."""
        shutil.rmtree(self.store.with_name(f"{self.store.name}.runs"), ignore_errors=True)

    def kill_everything(self) -> None:
        for pid in self.workers():
            _signal(pid, signal.SIGKILL)
        self.process.kill()


class Disturbed(AnyRun):
    """`remask ARGS` as a process of its own, with or without a terminal of its own."""

    process: subprocess.Popen[str]

    def __init__(self, *args: str, store: Path, terminal: bool = False) -> None:
        self._ours: int | None = None
        theirs: int | None = None
        if terminal:
            self._ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "remask", *args]
        if terminal:  # so that its end is told to the process, as a shell's would be
            command = [sys.executable, "-c", _WITH_A_TERMINAL, *command]
        process = subprocess.Popen(
            command,
            env={**os.environ, "REMASK_STORE": str(store), "OMP_NUM_THREADS": "1"},
            stdin=theirs,
            stdout=subprocess.PIPE if theirs is None else theirs,
            stderr=subprocess.PIPE if theirs is None else theirs,
            text=True,
            start_new_session=True,
        )
        if theirs is not None:
            os.close(theirs)
        self._streams = (process.stdout, process.stderr)
        super().__init__(process, store)

    def end(self, code: int, *, seconds: float = _PATIENCE) -> str:
        """Wait for it to end with that code; gives what it said on standard error."""
        try:
            err = self.process.communicate(timeout=seconds)[1]
        except subprocess.TimeoutExpired:
            self.kill_everything()
            self.output()
            raise
        assert self.process.returncode == code, err
        return " ".join((err or "").split())

    def leave(self) -> None:
        """Read no more of what it says."""
        for stream in self._streams:
            assert stream is not None
            stream.close()

    def close_the_terminal(self) -> None:
        assert self._ours is not None
        os.close(self._ours)


def children_of(pid: int | None) -> list[int]:
    try:
        return [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
    except OSError:  # it has ended itself
        return []


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # it has ended meanwhile
        os.kill(pid, number)


_WITH_A_TERMINAL = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may have it ignored
os.execv(sys.argv[1], sys.argv[1:])
"""


def rows(store: Path) -> list[TrialRecord]:
    """The stored trials, without what may differ: the times."""
    with Store(store) as opened:
        records = list(opened.records())
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    same = {"created": moment, "started": moment, "seconds": 0.0}
    return [record.model_copy(update=same) for record in records]
