"""The queue of the jobs of a run: hands them out, and stores how they end.

Each trial is claimed before it starts, and looked up in the store once more when it is claimed. A
claimed trial starts at once, and no run waits while it holds a claim, so no two runs can wait for
each other.
"""

import fcntl
import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from remask.config import TrialConfig
from remask.engine.checkpoints import checkpoints_in
from remask.errors import Stopped
from remask.experiments.jobs import (
    Event,
    Failed,
    Finished,
    Job,
    Lost,
    Note,
    PickedUp,
    Run,
    RunError,
    Work,
    read_plan,
    runs_folder,
    write_plan,
)
from remask.files import DurabilityError, Lock, make_folder, write_atomically
from remask.machine import StopRequest
from remask.record import TrialRecord
from remask.store.database import StoreError, StoreMovedError
from remask.store.export import export
from remask.store.store import Store

_SECONDS_BETWEEN_LOOKS = 0.5
_DIGITS = 15
"""This many hexadecimal digits of a trial's hash are its place in the file of claims."""


class Claims:
    """Claims on trials by their hashes, which hold between processes.

    A claim is a lock on one byte of a file that stays empty. The operating system frees the claims
    of a process that dies.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        make_folder(path.parent)
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise DurabilityError(
                f"cannot open {path}: {error.strerror}. Fix its permissions, or remove it while "
                f"nothing runs."
            ) from error

    def close(self) -> None:
        """Give all claims back."""
        os.close(self._file)

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


class JobQueue:
    """Hands out the jobs of a run, whose lock must be held, and stores every finished trial.

    `len(queue)` is the number of jobs to hand out; a job that is lost comes back. `tries` is how
    many processes may die while they run a job.
    """

    def __init__(
        self, store: Store, run: Run, claims: Claims, stop: StopRequest, tries: int
    ) -> None:
        self._store, self._run, self._claims, self._stop = store, run, claims, stop
        self._tries = tries
        self._plan = list(run.jobs)
        self._waiting = run.jobs_left(store)
        self._running: dict[str, Job] = {}
        self._split_from: dict[str, str] = {}  # by the name of a part: that of the planned job
        self._picked_up: set[TrialConfig] = set()
        self._losses = Counter[str]()
        self._next_look = 0.0
        self._noted_others = False
        self._any_failed = False
        self._unsaved: list[str] = []
        self._unstored: list[TrialRecord] | None = None
        """Records that came after the store's file was moved."""

    def __len__(self) -> int:
        return len(self._waiting)

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

    def handle(self, event: Event) -> Event | None:
        """Store how a job ended, and hand a lost one out again; returns the event to show.

        If the store's file was moved, everything stops as for a signal.
        """
        if isinstance(event, Failed | Lost) and self._stop.signal is not None:
            self._unsaved.append(f"{self._running[event.job].title()}: {event.error}")
            if isinstance(event, Lost):
                return None
        if isinstance(event, Lost):
            event = self._retry(event)
        try:
            self._store.check_in_place()
            if isinstance(event, Finished | Failed):
                self._end(self._running[event.job], event)
        except StoreMovedError:
            self._stop.signal = self._stop.signal or signal.SIGTERM
            self._unstored = self._unstored or []
            if isinstance(event, Finished):
                self._unstored += event.records
            return None
        planned = self._split_from.get(event.job, event.job)
        if isinstance(event, Finished):
            new = [record for record in event.records if record.config not in self._picked_up]
            return replace(event, job=planned, records=new)
        return replace(event, job=planned)

    def close(self) -> None:
        """Raise `Stopped` unless every job has ended; discard the run if none has failed.

        Raises StoreError if the store's file was moved: all records are saved elsewhere.
        """
        if self._unstored is not None:
            with suppress(DurabilityError):  # results are more important than the plan
                self._keep_plan()
            raise _rescued(self._store, self._unstored, self._run.folder)
        if self._unsaved or self._waiting or self._running:
            assert self._stop.signal is not None, "the executor left before the queue was empty"
            self._keep_plan()
            raise Stopped(self._stop.signal, self._unsaved)
        if not self._any_failed:
            self._run.discard()

    def _keep_plan(self) -> None:
        """Write the plan again if it was removed: without it, checkpoints are lost."""
        if not self._run.plan.exists():
            make_folder(self._run.folder)
            write_plan(self._run, self._plan)

    def _retry(self, lost: Lost) -> Note | Failed:
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

    def _end(self, job: Job, event: Finished | Failed) -> None:
        """Store how a job ended; only then its checkpoints and claims are given up."""
        if isinstance(event, Failed):
            self._any_failed = True
            for config in job.configs:
                self._store.add(TrialRecord.failure(config, event.error))
        else:
            for record in event.records:
                self._store.add(record, replace=self._run.again)
            if self._run.again:
                write_atomically(self._run.mark(job), b"")
            shutil.rmtree(self._run.checkpoints(job), ignore_errors=True)
        del self._running[job.name]
        self._free(job.configs)

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

    def _has_begun(self, job: Job) -> bool:
        try:
            return bool(checkpoints_in(self._run.checkpoints(job)))
        except DurabilityError:  # training the job will raise it
            return False

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
        at, place = self._plan.index(job), self._waiting.index(job)
        all_stored = all(config in self._picked_up for config in rest.configs)
        self._plan[at : at + 1] = [part, rest]
        self._waiting[place : place + 1] = [part] if all_stored else [part, rest]
        write_plan(self._run, self._plan)
        return part

    def _free(self, configs: Sequence[TrialConfig]) -> None:
        for config in configs:
            self._claims.free(config.hash)


@contextmanager
def open_queue(store: Store, run: Run, stop: StopRequest, tries: int) -> Iterator[JobQueue]:
    """The queue of what is left of a run, which is locked; the end of the block is that of the run.

    See `JobQueue.close` for what it raises.
    """
    with Lock(run.lock):
        if not run.plan.exists():  # another process finished it while this one waited
            run = replace(run, jobs=[])
        elif read_plan(run.folder).jobs != run.jobs:
            raise RunError(
                f"another process has just worked on the run in {run.folder}. Run the same command "
                f"again to continue."
            )
        with closing(Claims(runs_folder(store.path) / "claims")) as claims:
            queue = JobQueue(store, run, claims, stop, tries)
            yield queue
            queue.close()


def _rescued(store: Store, computed: Sequence[TrialRecord], folder: Path) -> StoreError:
    """Save the trials of a store whose file was moved beside its old place; the error to raise."""
    trials: dict[str, TrialRecord] = {}
    with suppress(StoreError):  # the file may be truncated
        trials |= {record.config_hash: record for record in store.held()}
    trials |= {record.config_hash: record for record in computed}
    begun = f"{store.path} was moved, removed or replaced while a run was writing to it. The run "
    if not trials:
        return StoreError(
            f"{begun}stopped before its first result; its checkpoints are in {folder}. Run the "
            f"same command again to continue."
        )
    now = f"{datetime.now(UTC):%Y%m%d-%H%M%S-%f}"
    target = store.path.with_name(f"{store.path.name}.rescued-{now}.json")
    make_folder(target.parent)
    export(trials.values(), "json", target)
    return StoreError(
        f"{begun}stopped. Its {len(trials)} trials are in {target}: `remask results import "
        f"{target} --store {store.path}` restores them, and then the same command continues from "
        f"the checkpoints in {folder}."
    )
