"""Worker processes, as the process that starts them sees them.

One thread handles all workers and never waits for a single pipe, so a worker that is stopped, dead
or busy does not hold up the others.
"""

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress

from remask.runs.events import Event, Failed, Finished, Lost, Note, from_line
from remask.runs.executor import Executor, WorkQueue
from remask.runs.forking import start_worker
from remask.runs.options import RunOptions
from remask.runs.plans import Work
from remask.runs.signals import StopRequest
from remask.runs.worker import Order

_CHUNK = 1 << 16
_SECONDS_BETWEEN_LOOKS = 0.1
_SECONDS_TO_EXIT = 5.0
"""How long a process may take to end after it has closed its output."""
_SECONDS_TO_SAVE = 60.0
"""How long a worker that was asked to stop may take to save."""
_SAVED = (128 + signal.SIGTERM, -signal.SIGTERM)
"""How a worker ends that was asked to: with all saved, or before it had begun with anything."""


class WorkerProcesses(Executor):
    """Hands jobs to worker processes, a new one as soon as one is done."""

    def __init__(self, count: int) -> None:
        self._count = count

    def run(self, queue: WorkQueue, options: RunOptions, stop: StopRequest) -> Generator[Event]:
        """See `Executor.run`."""
        workers: list[Worker] = []
        try:
            while stop.signal is None:
                while sum(worker.work is not None for worker in workers) < self._count:
                    taken = queue.take()
                    if taken is None:
                        break
                    if isinstance(taken, Work):
                        _idle(workers).give(taken, options)
                    else:
                        yield taken
                if queue.is_empty() and all(worker.work is None for worker in workers):
                    return
                _wait_for_any(workers)
                for worker in list(workers):
                    yield from worker.exchange()
                    if worker.exit_code is None:
                        continue
                    workers.remove(worker)
                    ended = f"worker process {_how_it_ended(worker.exit_code)}"
                    if worker.work is not None:
                        yield Lost(worker.work.job.name, f"the {ended}")
                    else:
                        yield Note("", f"a {ended} while it had nothing to do")
            yield from _stop(workers)
        finally:
            for _ in _stop(workers):  # leave no process behind; its events are dropped
                pass


class Worker:
    """A process that runs jobs, one at a time."""

    def __init__(self) -> None:
        its_orders, orders = os.pipe()
        reports, its_reports = os.pipe()
        self.orders = os.fdopen(orders, "wb", buffering=0)
        self.reports = os.fdopen(reports, "rb", buffering=0)
        try:
            self._process = start_worker(its_orders, its_reports)
        finally:
            os.close(its_orders)
            os.close(its_reports)
        for pipe in (self.orders, self.reports):
            os.set_blocking(pipe.fileno(), False)
        self.work: Work | None = None
        """What it is running."""
        self.exit_code: int | None = None
        """Minus a signal's number if that ended it; None while it lives."""
        self.unsent = b""
        self._unread = b""

    def give(self, work: Work, options: RunOptions) -> None:
        """Hand it a job."""
        order = Order(
            configs=work.job.configs, folder=work.folder, options=options, path=tuple(sys.path)
        )
        self.work = work
        # Not the path of the data: it may be no valid Unicode, and the data is in the cache by now.
        self.unsent += order.model_dump_json(exclude={"options": {"data", "log"}}).encode() + b"\n"

    def exchange(self) -> Iterator[Event]:
        """Send what it takes and read what it has reported, without waiting for either."""
        self._send()
        for event in self._receive():
            if isinstance(event, Finished | Failed):
                self.work = None
            yield event

    def ask_to_end(self) -> None:
        """Tell it to save and end; a paused one must continue first."""
        self.unsent = b""
        self.orders.close()  # an idle one waits for orders, and not for signals
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.send_signal(signal.SIGCONT)

    def end_now(self) -> None:
        """Kill it."""
        self._process.kill()
        self.exit_code = self._process.wait()
        self.orders.close()
        self.reports.close()

    def _send(self) -> None:
        with suppress(BlockingIOError):
            try:
                while self.unsent:
                    self.unsent = self.unsent[os.write(self.orders.fileno(), self.unsent) :]
            except BrokenPipeError:  # it is gone, as its silence will show
                self.unsent = b""

    def _receive(self) -> list[Event]:
        # Asked first: what it reported before its end can then be read.
        ended = self._process.poll() is not None
        try:
            while chunk := os.read(self.reports.fileno(), _CHUNK):
                self._unread += chunk
            ended = True
        except BlockingIOError:  # nothing more for now
            pass
        *lines, self._unread = self._unread.split(b"\n")
        events: list[Event] = []
        try:
            events.extend(from_line(line) for line in lines)
        except ValueError:  # not an event: nothing more that it says can be trusted
            self._process.kill()
            ended = True
        if ended:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_SECONDS_TO_EXIT)
            self.end_now()
        return events


def _idle(workers: list[Worker]) -> Worker:
    """One that has nothing to do, new if need be."""
    for worker in workers:
        if worker.work is None:
            return worker
    workers.append(Worker())
    return workers[-1]


def _wait_for_any(workers: Sequence[Worker]) -> None:
    """Until one of them has something to report or takes an order, or a moment has passed."""
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker.reports, selectors.EVENT_READ)
            if worker.unsent:
                selector.register(worker.orders, selectors.EVENT_WRITE)
        if workers:
            selector.select(_SECONDS_BETWEEN_LOOKS)
        else:
            time.sleep(_SECONDS_BETWEEN_LOOKS)


def _stop(workers: list[Worker]) -> Iterator[Event]:
    """Have all workers save and end; what one could not save is lost."""
    deadline = time.monotonic() + _SECONDS_TO_SAVE
    workers[:] = [worker for worker in workers if worker.exit_code is None]
    for worker in workers:
        worker.ask_to_end()
    while workers and time.monotonic() < deadline:
        _wait_for_any(workers)
        for worker in list(workers):
            yield from worker.exchange()
            if worker.exit_code is None:
                continue
            workers.remove(worker)
            if worker.work is not None and worker.exit_code not in _SAVED:
                error = f"the worker process {_how_it_ended(worker.exit_code)}"
                yield Lost(worker.work.job.name, error)
    while workers:
        worker = workers.pop()
        worker.end_now()
        if worker.work is not None:
            error = f"not done within {_SECONDS_TO_SAVE:g} s, and ended"
            yield Lost(worker.work.job.name, error)


def _how_it_ended(code: int) -> str:
    if code == -signal.SIGKILL:
        return "was killed, perhaps for want of memory"
    return f"ended with signal {-code}" if code < 0 else f"ended with exit code {code}"
