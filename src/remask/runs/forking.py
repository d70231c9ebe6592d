"""Starting worker processes: forked from a process that has torch loaded, or new ones that load it.

Loading torch takes longer than a short job. So the command line, as soon as it has loaded what a
worker needs and before it does anything else, forks a process that only waits, the fork server.
Workers are forked from that one: it has no threads, no open files and none of the user's code in
it. A notebook or a script may have all of these, so workers are new processes there, as they are
where forking is not safe (macOS) or the fork server has died.
"""

import gc
import os
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NoReturn, Protocol

from remask.machine import fork

_SECONDS_TO_FORK = 10.0
_SECONDS_TO_DIE = 5.0
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if hasattr(signal, "SIGHUP") else ()
"""Signals that end a worker, and must not end the fork server, which knows how workers end."""

Handlers = Mapping[signal.Signals, Any]


class WorkerProcess(Protocol):
    """What the parent does with a process, as `subprocess.Popen` does it."""

    pid: int

    def poll(self) -> int | None:
        """Its exit code, or minus the number of the signal that ended it; None while it lives."""

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, when it ends; raises subprocess.TimeoutExpired."""

    def send_signal(self, sig: int) -> None:
        """Send it a signal, if it lives."""

    def kill(self) -> None:
        """End it at once."""


def start_worker(orders: int, reports: int) -> WorkerProcess:
    """Start a worker that reads its orders from one file descriptor and reports to the other.

    It has a session of its own, so that a terminal's Ctrl-C, or its end, reaches the parent only.
    """
    if _server is not None:
        with suppress(OSError):  # it has died
            return _server.fork(orders, reports)
    # -P: keep the current folder off the path; any module may be in it.
    command = [sys.executable, "-P", "-m", "remask.runs.worker"]
    return subprocess.Popen(command, stdin=orders, stdout=reports, start_new_session=True)


def start_fork_server() -> None:
    """Load what workers need, and fork the process that they are forked from.

    Only for a process that has done nothing yet but importing, and has no threads.
    """
    global _server
    if sys.platform == "linux" and _server is None:
        from remask.runs import worker

        _server = ForkServer(worker.main)


class ForkServer:
    """The process that workers are forked from; it ends when this one does."""

    def __init__(self, work: Callable[[], int]) -> None:
        self._control, theirs = socket.socketpair()
        _flush()
        self._pid = fork()
        if self._pid == 0:
            try:
                self._control.close()
                _serve(theirs, work)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        theirs.close()

    def fork(self, orders: int, reports: int) -> WorkerProcess:
        """Fork a worker; raises OSError if that fails."""
        reader, writer = os.pipe()
        try:
            socket.send_fds(self._control, [b"f"], [orders, reports, writer])
        finally:
            os.close(writer)
        if not select.select([reader], [], [], _SECONDS_TO_FORK)[0]:
            os.kill(self._pid, signal.SIGKILL)  # so that what it has begun by now is known
        return _ForkedWorker(reader)


class _ForkedWorker:
    """A child of the fork server. It tells its process id, and the fork server how it has ended."""

    def __init__(self, status: int) -> None:
        self._status = os.fdopen(status, "rb", buffering=0)
        self._code: int | None = None
        self.pid = int(self._status.readline() or 0)
        if not self.pid:
            self._status.close()
            raise OSError("the fork server has died")

    def poll(self) -> int | None:
        """See `WorkerProcess`."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """See `WorkerProcess`; without a timeout, only for one that was killed."""
        if self._code is None:
            seconds = _SECONDS_TO_DIE if timeout is None else timeout
            line = self._line(seconds)
            if line is None and timeout is not None:
                raise subprocess.TimeoutExpired("worker", seconds)
            if not line:  # the fork server has died, so nobody will ever know
                self.kill()
            self._code = int(line or -signal.SIGKILL)
            self._status.close()
        return self._code

    def send_signal(self, sig: int) -> None:
        """See `WorkerProcess`."""
        if self._code is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, sig)

    def kill(self) -> None:
        """See `WorkerProcess`."""
        self.send_signal(signal.SIGKILL)

    def _line(self, seconds: float) -> bytes | None:
        """What the fork server tells next; empty if it has died, None if it tells nothing."""
        ready, _, _ = select.select([self._status], [], [], seconds)
        return self._status.readline() if ready else None


def _serve(control: socket.socket, work: Callable[[], int]) -> NoReturn:
    """Fork workers until the parent closes its end, or dies."""
    os.setsid()
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in _IGNORED}
    if not sys.flags.safe_path:
        del sys.path[0]  # the current folder, or that of the script
    gc.freeze()  # collections would write to the pages that workers share
    statuses: dict[int, int] = {}

    def tell_ends(*_: object) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                status = statuses.pop(ended[0])
                with suppress(BrokenPipeError):  # nobody wants to know any more
                    os.write(status, b"%d\n" % os.waitstatus_to_exitcode(ended[1]))
                os.close(status)

    signal.signal(signal.SIGCHLD, tell_ends)
    while True:
        asked, received, _, _ = socket.recv_fds(control, 1, 3)
        if not asked:
            os._exit(0)
        *pipes, status = received
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])  # until its status is known
        try:
            pid = fork()
        except OSError:
            os.close(status)
        else:
            if pid == 0:
                # Before it touches its pipes: the parent gives them to another one otherwise.
                os.write(status, b"%d\n" % os.getpid())
                for other in (control.detach(), status, *statuses.values()):
                    os.close(other)
                _become_worker(pipes, handlers, work)
            statuses[pid] = status
        for pipe in pipes:
            os.close(pipe)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])


def _become_worker(pipes: list[int], handlers: Handlers, work: Callable[[], int]) -> NoReturn:
    """Be what `python -m remask.runs.worker` is after its imports."""
    code = 1
    try:
        os.setsid()
        for number, handler in {**handlers, signal.SIGCHLD: signal.SIG_DFL}.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        for stream, pipe in enumerate(pipes):
            os.dup2(pipe, stream)
            os.close(pipe)
        _seed_numpy()
        code = work()
    except BaseException:
        traceback.print_exc()
    finally:
        leave(code)


def leave(code: int) -> NoReturn:
    """End this process at once: taking torch apart takes half a second."""
    _flush()
    os._exit(code)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # full, closed, or not there
            stream.flush()


def _seed_numpy() -> None:
    """A user's own code may draw from numpy's global generator: not the same in all workers."""
    import numpy as np

    np.random.seed()


_server: ForkServer | None = None
