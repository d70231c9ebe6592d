"""Worker processes of this machine."""

import os
import signal
import sys
import time
import warnings
from collections.abc import Generator, Iterator, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from typing import cast

import numpy as np

from remask.data.readers import UnreadableImageWarning
from remask.experiments.executors import Executor, JobQueue, ThisProcess
from remask.experiments.fork_server import CONTEXT, start_fork_server, without_main_module
from remask.experiments.jobs import Event, Failed, Finished, Lost, Note, RunError, Work
from remask.experiments.options import RunOptions
from remask.experiments.train import run_job
from remask.machine import StopRequest, keep_freed_memory

_SECONDS_BETWEEN_LOOKS = 0.1
_SECONDS_TO_EXIT = 5.0
_STARTS = 5
_SECONDS_TO_SAVE = 60.0
_SAVED = 128 + signal.SIGTERM
_UNKNOWN = 255
"""The exit code of a worker whose fork server died."""


class WorkerProcesses(Executor):
    """Trains up to `count` jobs at once in worker processes; a single job in this process."""

    def __init__(self, count: int) -> None:
        self._count = count

    def run(self, queue: JobQueue, options: RunOptions, stop: StopRequest) -> Generator[Event]:
        """See `Executor.run`."""
        if self._count == 1 or len(queue) <= 1:
            return ThisProcess().run(queue, options, stop)
        return self._run(queue, options, stop)

    def _run(self, queue: JobQueue, options: RunOptions, stop: StopRequest) -> Generator[Event]:
        workers: list[_Worker] = []
        try:
            while stop.signal is None:
                while sum(worker.work is not None for worker in workers) < self._count:
                    taken = queue.take()
                    if taken is None:
                        break
                    if isinstance(taken, Work):
                        idle = next((worker for worker in workers if worker.work is None), None)
                        if idle is None:
                            workers.append(idle := _Worker())
                        idle.give(taken, options)
                    else:
                        yield taken
                if not len(queue) and all(worker.work is None for worker in workers):
                    return
                yield from _next_events(workers)
            yield from _stop(workers)
        finally:
            for _ in _stop(workers):  # leave no process behind; drop its events
                pass


class _Worker:
    """A process that trains jobs, one at a time."""

    def __init__(self) -> None:
        self.connection, theirs = CONTEXT.Pipe()
        self.process = _started(theirs)
        theirs.close()
        self.work: Work | None = None
        """What it is training."""
        self._asked_to_stop = False

    def give(self, work: Work, options: RunOptions) -> None:
        """Start a job."""
        self.work = work
        # The data is prepared by now, and loggers stay in this process.
        self._send((work, options.model_copy(update={"data": None, "log": ()})))

    def ask_to_stop(self) -> None:
        """Make it save and end; a paused one must continue first."""
        if not self._asked_to_stop:
            self._asked_to_stop = True
            self._send(None)  # an idle one waits for jobs, not for signals
        for number in (signal.SIGTERM, signal.SIGCONT):
            self._signal(number)

    def end(self, seconds: float = _SECONDS_TO_EXIT) -> int:
        """Wait for its end, or kill it; returns its exit code, or minus a signal's number."""
        self.process.join(seconds)
        if self.process.exitcode in (None, _UNKNOWN):
            self._signal(signal.SIGKILL)
            self.process.join()
        self.connection.close()
        code = self.process.exitcode
        assert code is not None
        return code

    def _send(self, order: object) -> None:
        with suppress(OSError):  # it died, which the next look notices
            self.connection.send(order)

    def _signal(self, number: int) -> None:
        assert self.process.pid is not None
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, number)


def _started(connection: Connection) -> ForkServerProcess:
    """A new worker process; tries again if the fork server has just died."""
    for attempt in range(_STARTS):
        process = CONTEXT.Process(target=_work, args=(connection, dict(os.environ)))
        try:
            start_fork_server()
            with without_main_module():
                process.start()
        except (EOFError, OSError) as error:
            reason = error
            time.sleep(attempt * _SECONDS_BETWEEN_LOOKS)
        else:
            return process
    raise RunError(f"cannot start a worker process ({reason}); use --workers 1") from reason


def _next_events(workers: list[_Worker]) -> Iterator[Event]:
    """The next event of each worker that has one, or none after a moment."""
    if not workers:
        time.sleep(_SECONDS_BETWEEN_LOOKS)
        return
    sources: dict[object, _Worker] = {worker.connection: worker for worker in workers}
    sources |= {worker.process.sentinel: worker for worker in workers}
    ready = wait(cast(list[Connection], list(sources)), _SECONDS_BETWEEN_LOOKS)
    for worker in dict.fromkeys(sources[source] for source in ready):
        try:
            # A process of the worker's own may keep the connection of a dead worker open.
            event = worker.connection.recv() if worker.connection.poll() else None
        except (EOFError, OSError):
            event = None
        if event is None:
            workers.remove(worker)
            yield from _ended(worker)
            continue
        if isinstance(event, Finished | Failed):
            worker.work = None
        yield event


def _ended(worker: _Worker) -> Iterator[Event]:
    code = worker.end()
    if code == -signal.SIGKILL:
        how = "was killed, possibly out of memory"
    else:
        how = f"ended with signal {-code}" if code < 0 else f"ended with exit code {code}"
    if worker.work is None and code:
        yield Note("", f"an idle worker process {how}")
    elif worker.work is not None and code != _SAVED:
        yield Lost(worker.work.job.name, f"the worker process {how}")


def _stop(workers: list[_Worker]) -> Iterator[Event]:
    """Make all workers save and end; jobs that were not saved are lost."""
    deadline = time.monotonic() + _SECONDS_TO_SAVE
    while workers and time.monotonic() < deadline:
        for worker in workers:  # again and again: a new one ignores signals at first
            worker.ask_to_stop()
        yield from (event for event in _next_events(workers) if not isinstance(event, Note))
    while workers:
        worker = workers.pop()
        worker.end(seconds=0)
        if worker.work is not None:
            error = f"not saved within {_SECONDS_TO_SAVE:g} s, and killed"
            yield Lost(worker.work.job.name, error)


def _work(connection: Connection, environment: Mapping[str, str]) -> None:
    """Train the jobs that arrive until the connection closes: the body of a worker process."""
    os.environ.clear()
    os.environ.update(environment)
    with suppress(OSError):  # standard error may be closed
        os.dup2(2, 1)  # only results belong on standard output
    # The parent has loaded the same data and warned once for all.
    warnings.simplefilter("ignore", UnreadableImageWarning)
    np.random.seed()  # for the user's own code: not the same in all workers
    keep_freed_memory()
    with StopRequest() as stop, suppress(EOFError, BrokenPipeError, ConnectionResetError):
        # The parent decides what Ctrl-C means, and sends SIGTERM.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        while (order := connection.recv()) is not None:
            work, options = order
            for event in run_job(work.job, work.folder, options, stop):
                connection.send(event)
            if stop.signal is not None:
                sys.exit(128 + stop.signal)
