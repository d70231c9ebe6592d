"""The queue of the jobs of a run, and where they are trained.

Each trial is claimed before it starts, and looked up in the store once more when it is claimed. A
claimed trial starts at once, and no run waits while it holds a claim, so no two runs can wait for
each other.
"""

import fcntl
import os
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from remask.config import TrialConfig
from remask.engine.checkpoints import checkpoints_in
from remask.experiments.jobs import (
    Event,
    Failed,
    Finished,
    Job,
    Lost,
    Note,
    PickedUp,
    Run,
    Work,
    write_plan,
)
from remask.experiments.options import RunOptions
from remask.experiments.train import run_job
from remask.files import DurabilityError, make_folder
from remask.machine import StopRequest
from remask.store.store import Store

_SECONDS_BETWEEN_LOOKS = 0.5
_DIGITS = 15
"""This many hexadecimal digits of a trial's hash are its place in the file of claims."""
_IN_USE = 16**_DIGITS
"""The place after all others, on which every user of the file has a shared lock."""


_T = TypeVar("_T")


class JobQueue:
    """Hands out the jobs of a run, whose lock must be held.

    `len(queue)` is the number of jobs to hand out; a job that is lost comes back. `tries` is how
    many processes may die while they run a job.
    """

    def __init__(self, store: Store, run: Run, claims: "Claims", tries: int) -> None:
        self._store, self._run, self._claims, self._tries = store, run, claims, tries
        self._plan = list(run.jobs)
        self._waiting = jobs_left(store, run)
        self._running: dict[str, Job] = {}
        self._split_from: dict[str, str] = {}  # by the name of a part: that of the planned job
        self._picked_up: set[TrialConfig] = set()
        self._losses = Counter[str]()
        self._next_look = 0.0
        self._noted_others = False

    def __len__(self) -> int:
        return len(self._waiting)

    def is_finished(self) -> bool:
        """Whether every job was taken and has ended."""
        return not self._waiting and not self._running

    def take(self) -> Work | Event | None:
        """The next job, or an event to yield; None if no job is free at the moment."""
        if not self._waiting or time.monotonic() < self._next_look:
            return None
        for job in list(self._waiting):
            if (taken := self._take(job)) is not None:
                return taken
        self._next_look = time.monotonic() + _SECONDS_BETWEEN_LOOKS
        if self._noted_others:
            return None
        self._noted_others = True
        waiting = [config for job in self._waiting for config in job.configs]
        trials = sum(config not in self._picked_up for config in waiting)
        return Note("", f"another process trains {trials} of these trials; waiting for its results")

    def job(self, name: str) -> Job:
        """The running job of that name."""
        return self._running[name]

    def retry(self, lost: Lost) -> Note | Failed:
        """Hand out a lost job again, unless it was lost too often."""
        self._losses[lost.job] += 1
        if self._losses[lost.job] >= self._tries:
            again = "continue from the latest checkpoint" if lost.resumes else "try again"
            return Failed(
                lost.job,
                f"{lost.error}, the last of {self._tries} tries; run the same command again to "
                f"{again}, with fewer --workers if memory is short\n{lost.details}".rstrip(),
            )
        job = self._running.pop(lost.job)
        self._waiting.insert(0, job)  # its claims are kept
        self._next_look = 0.0
        where = "from the latest checkpoint" if lost.resumes else "from the start"
        return Note(lost.job, f"{job.title()}: {lost.error}; retrying {where}")

    def release(self, job: Job) -> None:
        """Remove a job that has ended, after its results were stored."""
        del self._running[job.name]
        self._free(job.configs)

    def as_planned(self, event: Event) -> Event:
        """The event with the name of the planned job, which may have been split."""
        job = self._split_from.get(event.job, event.job)
        if isinstance(event, Finished):
            new = [record for record in event.records if record.config not in self._picked_up]
            return replace(event, job=job, records=new)
        return replace(event, job=job)

    def keep_plan(self) -> None:
        """Write the plan again if it was removed: without it, checkpoints are lost."""
        if not self._run.plan.exists():
            make_folder(self._run.folder)
            write_plan(self._run, self._plan)

    def _has_begun(self, job: Job) -> bool:
        try:
            return bool(checkpoints_in(self._run.checkpoints(job)))
        except DurabilityError:  # training the job will raise it
            return False

    def _take(self, job: Job) -> Work | PickedUp | None:
        if self._run.again:  # also if the store has it
            return self._begin(job)
        left = [config for config in job.configs if config not in self._picked_up]
        mine = [config for config in left if self._claims.take(config.hash)]
        stored = [config for config in mine if self._store.is_done(config.hash)]
        found = [record for config in stored if (record := self._store.get(config.hash))]
        if found:
            self._free(mine)
            self._picked_up.update(record.config for record in found)
            if len(found) == len(left):
                self._waiting.remove(job)
            return PickedUp(job.name, found)
        if not mine:
            return None
        begun = self._has_begun(job)
        if len(mine) == len(job.configs) or (begun and len(mine) == len(left)):
            return self._begin(job)
        if begun:  # it cannot be divided any more
            self._free(mine)
            return None
        return self._begin(self._split(job, mine))

    def _begin(self, job: Job) -> Work:
        self._waiting.remove(job)
        self._running[job.name] = job
        return Work(job, self._run.checkpoints(job))

    def _split(self, job: Job, mine: Sequence[TrialConfig]) -> Job:
        """Divide a job, also in the plan: a resumed run must find the part's checkpoints."""
        rest = Job(tuple(config for config in job.configs if config not in mine))
        part = Job(tuple(mine))
        for piece in (part, rest):
            self._split_from[piece.name] = self._split_from.get(job.name, job.name)
        _replace(self._plan, job, [part, rest])
        all_stored = all(config in self._picked_up for config in rest.configs)
        _replace(self._waiting, job, [part] if all_stored else [part, rest])
        write_plan(self._run, self._plan)
        return part

    def _free(self, configs: Sequence[TrialConfig]) -> None:
        for config in configs:
            self._claims.free(config.hash)


def _replace(jobs: list[Job], old: Job, new: Sequence[Job]) -> None:
    at = jobs.index(old)
    jobs[at : at + 1] = new


class Claims:
    """Claims on trials by their hashes, which hold between processes.

    A claim is a lock on one byte of a file that stays empty. The operating system frees the claims
    of a process that dies.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Self:
        make_folder(self._path.parent)
        try:
            while not self._open():
                pass
        except OSError as error:
            raise DurabilityError(
                f"cannot open {self._path}: {error.strerror}. Fix its permissions, or remove it "
                f"while nothing runs."
            ) from error
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # the last user removes it
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _IN_USE)
            self._path.unlink()
        os.close(self._file)  # which frees all claims

    def _open(self) -> bool:
        """Open the file; False if its last user has removed it meanwhile."""
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        fcntl.lockf(self._file, fcntl.LOCK_SH, 1, _IN_USE)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(self._file), self._path.stat()):
                return True
        os.close(self._file)
        return False

    def take(self, config_hash: str) -> bool:
        """Claim a trial; False if another process has."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _place(config_hash))
        except (BlockingIOError, PermissionError):  # POSIX allows either
            return False
        except OSError as error:
            raise DurabilityError(
                f"cannot lock {self._path}: {error.strerror}. Choose a store on a file system with "
                f"locks."
            ) from error
        return True

    def free(self, config_hash: str) -> None:
        """Give a claim back."""
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _place(config_hash))


def _place(config_hash: str) -> int:
    return int(config_hash[:_DIGITS], 16)


def jobs_left(store: Store, run: Run) -> list[Job]:
    """The jobs of a run that are not done."""
    if run.again:  # the store has had the trials before
        return [job for job in run.jobs if not run.mark(job).exists()]
    return [
        job for job in run.jobs if not all(store.is_done(config.hash) for config in job.configs)
    ]


class Executor(ABC):
    """Trains the jobs of a run and reports what becomes of them.

    It decides itself how many jobs to train at once.
    """

    on_this_machine: ClassVar[bool] = True
    """Whether the jobs must fit into the memory of this machine."""
    tries: int = 3
    """How many processes may die while they run a job before it is given up."""

    def largest_stacks(
        self, configs: Sequence[TrialConfig], options: RunOptions
    ) -> Callable[[TrialConfig], int] | None:
        """The most trials like a given one to train as one; None: as on this machine."""
        return None

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
                time.sleep(_SECONDS_BETWEEN_LOOKS)
            elif isinstance(taken, Work):
                yield from run_job(taken.job, taken.folder, options, stop)
            else:
                yield taken
