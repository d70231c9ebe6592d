"""Executors: where the jobs of a run are trained.

To run jobs elsewhere, write a class with one method, `Executor.run`, and give an instance of it to
`remask.run(..., executor=...)`. Storing results, claims, retries and failures are handled outside,
in the same way for all executors.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

from remask.config import TrialConfig
from remask.runs.events import Event
from remask.runs.options import RunOptions
from remask.runs.plans import Work
from remask.runs.signals import StopRequest
from remask.runs.train import run_job

_SECONDS_BETWEEN_LOOKS = 0.1

_T = TypeVar("_T")


class WorkQueue(Protocol):
    """Where an executor gets its work."""

    def take(self) -> Work | Event | None:
        """The next job, or an event to yield; None if nothing is free at the moment."""

    def is_empty(self) -> bool:
        """Whether everything has been taken; a job that gets lost comes back."""


class Executor(ABC):
    """Trains the jobs of a run and says what becomes of them.

    How many it trains at once is its own decision.
    """

    on_this_machine: ClassVar[bool] = True
    """Whether the jobs have to fit into the memory of this machine."""
    tries: int = 3
    """How many processes may die while they run a job, before it is given up."""

    def largest_stacks(
        self, configs: Sequence[TrialConfig], options: RunOptions
    ) -> Callable[[TrialConfig], int] | None:
        """How many trials like a given one to train as one, if the executor has a say in that."""
        return None

    def at_once(self, options: RunOptions) -> int:
        """For how many jobs at once the trials are divided."""
        return options.processes

    def call(self, function: Callable[..., _T], *args: Any, options: RunOptions) -> _T:
        """Call a function where jobs are trained, with the resources of a job."""
        return function(*args)

    def disconnect(self) -> None:
        """Close the connections that were opened outside of `run`."""

    @abstractmethod
    def run(self, queue: WorkQueue, options: RunOptions, stop: StopRequest) -> Generator[Event]:
        """Train what the queue hands out until it is empty and no job is running; yield events.

        - `run_job` trains a job, in any process on any machine; yield the events that it yields.
          Without a folder it makes no checkpoints, and a job that is lost starts over.
        - An event that the queue hands out is yielded as it is.
        - If the process of a job dies, yield `Lost`: then the queue hands the job out once more,
          or gives it up after `tries` of them.
        - Once `stop.signal` is set, take nothing more, have all running jobs save (`run_job` does,
          when the `stop` that it was given is set), and return. A job that cannot is `Lost`.
        - If the generator is closed, leave no process behind.
        """


class ThisProcess(Executor):
    """Trains one job after the other, here."""

    def run(self, queue: WorkQueue, options: RunOptions, stop: StopRequest) -> Generator[Event]:
        """See `Executor.run`."""
        while stop.signal is None and not queue.is_empty():
            taken = queue.take()
            if taken is None:
                time.sleep(_SECONDS_BETWEEN_LOOKS)
            elif isinstance(taken, Work):
                yield from run_job(taken.job, taken.folder, options, stop)
            else:
                yield taken
