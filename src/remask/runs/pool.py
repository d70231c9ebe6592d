"""Run many jobs at once, in this process or in several."""

import signal
import time
from collections import Counter
from collections.abc import Generator, Iterator
from typing import Protocol

from remask.errors import Stopped
from remask.runs.crew import Worker, end_all, wait_for_any
from remask.runs.events import Event, Failed, Finished, Note
from remask.runs.execute import execute
from remask.runs.failures import describe_failure
from remask.runs.jobs import Work
from remask.runs.options import RunOptions
from remask.runs.signals import StopRequest

_SECONDS_TO_SAVE = 60.0
"""How long a worker that was asked to stop may take to save."""
_TRIES = 3
"""How many workers may die of one job."""
_SAVED = (128 + signal.SIGTERM, -signal.SIGTERM)
"""How a worker ends that was asked to: with all saved, or before it had begun with anything."""
_SECONDS_BETWEEN_LOOKS = 0.1


class Agenda(Protocol):
    """Where the work comes from."""

    def take(self) -> Work | Event | None:
        """What is to be done next, or something to report; None if nothing is free just now."""

    def is_empty(self) -> bool:
        """Whether all has been taken."""


def run_jobs(
    agenda: Agenda, *, workers: int, options: RunOptions, stop: StopRequest
) -> Generator[Event]:
    """Run jobs, each with a folder for its checkpoints, and yield what they report.

    Raises `Stopped` if asked to stop, once everything is saved, or with what could not be.
    """
    if workers == 1:
        yield from _run_here(agenda, options, stop)
    else:
        yield from _run_in_workers(agenda, workers, options, stop)


def _run_here(agenda: Agenda, options: RunOptions, stop: StopRequest) -> Iterator[Event]:
    """One job after the other."""
    while not agenda.is_empty():
        if stop.signal is not None:
            raise Stopped(stop.signal)
        taken = agenda.take()
        if taken is None:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        elif isinstance(taken, Work):
            try:
                yield from execute(taken.job, taken.folder, options, stop)
            except Stopped:
                raise
            except Exception as error:
                reason = describe_failure(error)
                yield Failed(taken.job.name, reason)
                if stop.signal is not None:
                    raise Stopped(stop.signal, [f"{taken.job.title()}: {reason}"]) from error
        else:
            yield taken


def _run_in_workers(
    agenda: Agenda, most: int, options: RunOptions, stop: StopRequest
) -> Iterator[Event]:
    """Hand jobs to worker processes, a new one as soon as one is done.

    The job of a worker that dies goes to another one, which goes on from its latest checkpoint.
    """
    workers: list[Worker] = []
    returned: list[Work] = []
    deaths = Counter[str]()
    try:
        while stop.signal is None:
            while sum(worker.work is not None for worker in workers) < most:
                taken = returned.pop() if returned else agenda.take()
                if taken is None:
                    break
                if isinstance(taken, Work):
                    _idle(workers).give(taken, options)
                else:
                    yield taken
            busy = any(worker.work is not None for worker in workers)
            if not busy and not returned and agenda.is_empty():
                return
            wait_for_any(workers)
            for worker in list(workers):
                yield from _heard(worker)
                if worker.exit_code is None:
                    continue
                workers.remove(worker)
                how = _how_it_ended(worker.exit_code)
                if (work := worker.work) is None:
                    yield Note("", f"a worker process {how} while it had nothing to do")
                    continue
                deaths[work.job.name] += 1
                if deaths[work.job.name] < _TRIES:
                    returned.append(work)
                    yield Note(
                        work.job.name,
                        f"the worker process with {work.job.title()} {how}; "
                        "another one goes on from the latest checkpoint",
                    )
                else:
                    yield Failed(
                        work.job.name,
                        f"the worker process {how}, the last of {_TRIES} "
                        "that died of it; run the same command again to go on from the "
                        "latest checkpoint, with fewer --workers if memory is short",
                    )
        unsaved: list[str] = []
        yield from _stop(workers, unsaved)
        raise Stopped(stop.signal, unsaved)
    finally:
        end_all(workers, _SECONDS_TO_SAVE)


def _idle(workers: list[Worker]) -> Worker:
    """One that has nothing to do, new if need be."""
    for worker in workers:
        if worker.work is None:
            return worker
    workers.append(Worker())
    return workers[-1]


def _heard(worker: Worker) -> Iterator[Event]:
    """What a worker has said; with the end of its job it has no more in hand."""
    for event in worker.exchange():
        if isinstance(event, Finished | Failed):
            worker.work = None
        yield event


def _stop(workers: list[Worker], unsaved: list[str]) -> Iterator[Event]:
    """Have all workers save and end, and note in `unsaved` what they could not save."""
    deadline = time.monotonic() + _SECONDS_TO_SAVE
    for worker in workers:
        worker.ask_to_end()
    while workers and time.monotonic() < deadline:
        wait_for_any(workers)
        for worker in list(workers):
            work = worker.work
            for event in _heard(worker):
                yield event
                if isinstance(event, Failed) and work is not None:
                    unsaved.append(f"{work.job.title()}: {event.error}")
            if worker.exit_code is None:
                continue
            workers.remove(worker)
            if worker.work is not None and worker.exit_code not in _SAVED:
                how = _how_it_ended(worker.exit_code)
                unsaved.append(f"{worker.work.job.title()}: the worker process {how}")
    for worker in workers:
        worker.end_now()
        if worker.work is not None:
            title = worker.work.job.title()
            unsaved.append(f"{title}: not done within {_SECONDS_TO_SAVE:g} s, and ended")


def _how_it_ended(code: int) -> str:
    if code == -signal.SIGKILL:
        return "was killed, perhaps for want of memory"
    return f"ended with signal {-code}" if code < 0 else f"ended with exit code {code}"
