"""Where jobs are trained: in this process, or in worker processes of this machine."""

import os
import signal
import sys
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from typing import Any, ClassVar, TypeVar, cast

import numpy as np

from remask.data.readers import UnreadableImageWarning
from remask.experiments.fork_server import (
    CONTEXT,
    prepare_fork_server,
    start_fork_server,
    without_main_module,
)
from remask.experiments.job_queue import JobQueue
from remask.experiments.jobs import Event, Failed, Finished, Lost, Note, RunError, Work
from remask.experiments.options import RunOptions
from remask.experiments.train import run_job
from remask.machine import StopRequest, keep_freed_memory

SECONDS_BETWEEN_LOOKS = 0.1
SECONDS_TO_SAVE = 60.0
_SECONDS_TO_EXIT = 5.0
_STARTS = 5
_SAVED = 128 + signal.SIGTERM
_UNKNOWN = 255
"""The exit code of a worker whose fork server died."""
_T = TypeVar("_T")


class Executor(ABC):
    """Trains the jobs of a run and reports what becomes of them.

    It decides itself how many jobs to train at once.
    """

    on_this_machine: ClassVar[bool] = True
    """Whether the jobs must fit into the memory of this machine."""
    tries: int = 3
    """How many processes may die while they run a job before it is given up."""

    def at_once(self, options: RunOptions) -> int:
        """The number of jobs at once that the trials are divided for."""
        return options.processes

    def call(self, function: Callable[..., _T], *args: Any, options: RunOptions) -> _T:
        """Call a function where jobs are trained, with the resources of a job."""
        return function(*args)

    def disconnect(self) -> None:
        """Close the connections that were opened outside of `run`."""

    @abstractmethod
    def run(self, queue: JobQueue, options: RunOptions, stop: StopRequest) -> Generator[Event]:
        """Train what the queue hands out until it is empty and no job is running; yield events.

        - `run_job` trains a job, in any process on any machine; yield its events. Without a folder
          it makes no checkpoints, and a job that is lost starts over.
        - Yield an event that the queue hands out as it is.
        - If the process of a job dies, yield `Lost`: the queue hands the job out again, or gives it
          up after `tries` losses.
        - Once `stop.signal` is set, take no more jobs, make all running jobs save (`run_job` does
          when its `stop` is set), and return. Yield `Lost` for a job that cannot.
        - If the generator is closed, leave no process behind.
        """


class ThisProcess(Executor):
    """Trains one job after the other in this process."""

    def run(self, queue: JobQueue, options: RunOptions, stop: StopRequest) -> Generator[Event]:
        """See `Executor.run`."""
        while stop.signal is None and len(queue):
            taken = queue.take()
            if taken is None:
                time.sleep(SECONDS_BETWEEN_LOOKS)
            elif isinstance(taken, Work):
                yield from run_job(taken.job, taken.folder, options, stop)
            else:
                yield taken


class Pool(ABC):
    """Processes that train several jobs at once, until `stop` asks them to save and end."""

    def __init__(self, stop: StopRequest) -> None:
        self.stop = stop

    @abstractmethod
    def running(self) -> list[Work]:
        """The jobs that they have."""

    @abstractmethod
    def has_room(self) -> bool:
        """Whether another job can be given to them."""

    @abstractmethod
    def start(self, work: Work) -> Iterator[Event]:
        """Give a job to one; yields `Failed` if that is not possible."""

    @abstractmethod
    def next_events(self) -> Iterator[Event]:
        """The next events of the jobs, or none after a moment."""

    @abstractmethod
    def ask_to_stop(self) -> None:
        """Make all jobs save and end; called several times."""

    @abstractmethod
    def end(self) -> None:
        """Leave no process behind, whatever it is doing."""

    def train(self, queue: JobQueue) -> Generator[Event]:
        """Train the jobs of a queue; see `Executor.run`."""
        try:
            while self.stop.signal is None:
                while self.has_room() and (taken := queue.take()) is not None:
                    if isinstance(taken, Work):
                        yield from self.start(taken)
                    else:
                        yield taken
                if not len(queue) and not self.running():
                    return
                yield from self.next_events()
            yield from self._stop()
        finally:
            try:
                for _ in self._stop():  # drop its events
                    pass
            finally:
                self.end()

    def _stop(self) -> Iterator[Event]:
        """Make all jobs save and end; those that do not in time are lost."""
        deadline = time.monotonic() + SECONDS_TO_SAVE
        while self.running() and time.monotonic() < deadline:
            self.ask_to_stop()
            yield from (event for event in self.next_events() if not isinstance(event, Note))
        late = self.running()
        if late:
            self.end()
        for work in late:
            yield Lost(work.job.name, f"not saved within {SECONDS_TO_SAVE:g} s, and killed")


class WorkerProcesses(Executor):
    """Trains up to `count` jobs at once in worker processes; a single job in this process."""

    def __init__(self, count: int) -> None:
        self._count = count

    def run(self, queue: JobQueue, options: RunOptions, stop: StopRequest) -> Generator[Event]:
        """See `Executor.run`."""
        if self._count == 1 or len(queue) <= 1:
            return ThisProcess().run(queue, options, stop)
        return _Workers(self._count, options, stop).train(queue)


class _Worker:
    """A process that trains jobs, one at a time."""

    def __init__(self) -> None:
        self.connection, theirs = CONTEXT.Pipe()
        self.process = _started(theirs)
        theirs.close()
        self.work: Work | None = None
        """What it is training."""

    def send(self, order: object) -> None:
        """Send a job with options; errors are ignored."""
        with suppress(OSError):  # it died, which the next look notices
            self.connection.send(order)

    def signal(self, number: int) -> None:
        """Send a signal, if it is still there."""
        assert self.process.pid is not None
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, number)

    def end(self, seconds: float = _SECONDS_TO_EXIT) -> int:
        """Wait for its end, or kill it; returns its exit code, or minus a signal's number."""
        self.connection.close()  # an idle one ends
        self.process.join(seconds)
        if self.process.exitcode in (None, _UNKNOWN):
            self.signal(signal.SIGKILL)
            self.process.join()
        code = self.process.exitcode
        assert code is not None
        return code


class _Workers(Pool):
    """Worker processes of this machine; new ones are started as they are needed."""

    def __init__(self, count: int, options: RunOptions, stop: StopRequest) -> None:
        super().__init__(stop)
        self._count = count
        # The data is prepared by now, and loggers stay in this process.
        self._options = options.model_copy(update={"data": None, "log": ()})
        self._workers: list[_Worker] = []

    def running(self) -> list[Work]:
        return [worker.work for worker in self._workers if worker.work is not None]

    def has_room(self) -> bool:
        return len(self.running()) < self._count

    def start(self, work: Work) -> Iterator[Event]:
        idle = next((worker for worker in self._workers if worker.work is None), None)
        if idle is None:
            self._workers.append(idle := _Worker())
        idle.work = work
        idle.send((work, self._options))
        return iter(())

    def next_events(self) -> Iterator[Event]:
        if not self._workers:
            time.sleep(SECONDS_BETWEEN_LOOKS)
            return
        sources: dict[object, _Worker] = {worker.connection: worker for worker in self._workers}
        sources |= {worker.process.sentinel: worker for worker in self._workers}
        ready = wait(cast(list[Connection], list(sources)), SECONDS_BETWEEN_LOOKS)
        for worker in dict.fromkeys(sources[source] for source in ready):
            try:
                # A process of the worker's own may keep the connection of a dead worker open.
                event = worker.connection.recv() if worker.connection.poll() else None
            except (EOFError, OSError):
                event = None
            if event is None:
                yield from self._ended(worker)
                continue
            if isinstance(event, Finished | Failed):
                worker.work = None
            yield event

    def _ended(self, worker: _Worker) -> Iterator[Event]:
        self._workers.remove(worker)
        code = worker.end()
        if code == -signal.SIGKILL:
            how = "was killed, possibly out of memory"
        else:
            how = f"ended with signal {-code}" if code < 0 else f"ended with exit code {code}"
        if worker.work is None and code:
            yield Note("", f"an idle worker process {how}")
        elif worker.work is not None and not (self.stop.signal and code == _SAVED):
            yield Lost(worker.work.job.name, f"the worker process {how}")

    def ask_to_stop(self) -> None:
        for worker in self._workers:  # again and again: a new one ignores signals at first
            if worker.work is not None:
                for number in (signal.SIGTERM, signal.SIGCONT):  # a paused one must continue first
                    worker.signal(number)

    def end(self) -> None:
        for worker in self._workers:
            if worker.work is not None:
                worker.signal(signal.SIGKILL)
            worker.end()
        self._workers.clear()


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
            time.sleep(attempt * SECONDS_BETWEEN_LOOKS)
        else:
            return process
    raise RunError(f"cannot start a worker process ({reason}); use --workers 1") from reason


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
        while True:
            work, options = connection.recv()
            for event in run_job(work.job, work.folder, options, stop):
                connection.send(event)
            if stop.signal is not None:
                sys.exit(128 + stop.signal)


prepare_fork_server()  # which imports this module first
