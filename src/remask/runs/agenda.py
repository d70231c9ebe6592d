"""What is left of a run, handed out piece by piece, and shared with other runs.

Other processes may want some of the same trials. So each is claimed before it is begun, and looked
for in the store once more when it is claimed. Whatever is claimed is begun at once, and nobody
waits with a claim in hand: no two runs can wait for each other.
"""

import time
from collections.abc import Sequence
from dataclasses import replace

from remask.config import TrialConfig
from remask.durable import make_folder
from remask.engine import TrialResult
from remask.results import Store, TrialRecord, config_hash
from remask.runs.claims import Claims
from remask.runs.events import Event, Finished, Note, PickedUp
from remask.runs.jobs import Job, Work
from remask.runs.plans import Run, write_plan

_SECONDS_BETWEEN_LOOKS = 0.5


class RunAgenda:
    """Hands out the jobs of a run, whose lock must be held."""

    def __init__(self, store: Store, run: Run, claims: Claims) -> None:
        self._store = store
        self._run = run
        self._claims = claims
        self._jobs = list(run.jobs)
        self._waiting = jobs_left(store, run)
        self._in_hand: dict[str, Job] = {}
        self._whole: dict[str, str] = {}  # the name of the job that a part was split from
        self._picked_up: set[TrialConfig] = set()
        self._next_look = 0.0
        self._said_so = False

    def is_empty(self) -> bool:
        """Whether all has been taken."""
        return not self._waiting

    def take(self) -> Work | PickedUp | Note | None:
        """What is to be done next, or something to report; None if nothing is free just now."""
        if time.monotonic() < self._next_look:
            return None
        for job in list(self._waiting):
            if (taken := self._take(job)) is not None:
                return taken
        if not self._waiting:
            return None
        self._next_look = time.monotonic() + _SECONDS_BETWEEN_LOOKS
        if self._said_so:
            return None
        self._said_so = True
        trials = sum(
            config not in self._picked_up for job in self._waiting for config in job.configs
        )
        return Note(
            "",
            f"another process is at work on {trials} of these trials; its results will "
            "be taken from the store",
        )

    def job(self, name: str) -> Job:
        """The job in hand of that name."""
        return self._in_hand[name]

    def shown(self, event: Event) -> Event:
        """The event as one of the jobs of the run, of which the job in hand may be a part."""
        job = self._whole.get(event.job, event.job)
        if isinstance(event, Finished):
            new = [result for result in event.results if result.config not in self._picked_up]
            return replace(event, job=job, results=new)
        return replace(event, job=job)

    def keep_plan(self) -> None:
        """Write the plan again if somebody has removed it: checkpoints without one are lost."""
        if not self._run.plan.exists():
            make_folder(self._run.folder)
            write_plan(self._run, self._jobs)

    def put_away(self, job: Job) -> None:
        """Let go of a job that has come to an end, after its results were stored."""
        del self._in_hand[job.name]
        self._free(job.configs)

    def _take(self, job: Job) -> Work | PickedUp | None:
        if self._run.again:  # what the store has is not what is asked for, whoever computed it
            return self._begin(job)
        left = [config for config in job.configs if config not in self._picked_up]
        mine = [config for config in left if self._claims.take(config_hash(config))]
        if found := [record for config in mine if (record := self._done(config)) is not None]:
            self._free(mine)
            self._picked_up.update(record.config for record in found)
            if len(found) == len(left):
                self._waiting.remove(job)
            return PickedUp(job.name, [_result(record) for record in found])
        if not mine:
            return None
        begun = any(self._run.checkpoints(job).glob("checkpoint-*"))
        if len(mine) == len(job.configs) or (begun and len(mine) == len(left)):
            return self._begin(job)
        if begun:  # it cannot be divided any more
            self._free(mine)
            return None
        return self._begin(self._split(job, mine))

    def _begin(self, job: Job) -> Work:
        self._waiting.remove(job)
        self._in_hand[job.name] = job
        return Work(job, self._run.checkpoints(job))

    def _split(self, job: Job, mine: Sequence[TrialConfig]) -> Job:
        """Divide a job, also in the plan: a resumed run must find the part's checkpoints."""
        rest = Job(tuple(config for config in job.configs if config not in mine))
        part = Job(tuple(mine))
        for piece in (part, rest):
            self._whole[piece.name] = self._whole.get(job.name, job.name)
        _replace(self._jobs, job, [part, rest])
        all_known = all(config in self._picked_up for config in rest.configs)
        _replace(self._waiting, job, [part] if all_known else [part, rest])
        write_plan(self._run, self._jobs)
        return part

    def _done(self, config: TrialConfig) -> TrialRecord | None:
        name = config_hash(config)
        return self._store.get(name) if self._store.is_done(name) else None

    def _free(self, configs: Sequence[TrialConfig]) -> None:
        for config in configs:
            self._claims.free(config_hash(config))


def jobs_left(store: Store, run: Run) -> list[Job]:
    """Those of a run's jobs that are not done."""
    return [job for job in run.jobs if not _is_done(store, run, job)]


def _is_done(store: Store, run: Run, job: Job) -> bool:
    if run.again:  # being in the store says nothing then: only this run's own mark does
        return run.mark(job).exists()
    return all(store.is_done(config_hash(config)) for config in job.configs)


def _replace(jobs: list[Job], old: Job, new: Sequence[Job]) -> None:
    at = jobs.index(old)
    jobs[at : at + 1] = new


def _result(record: TrialRecord) -> TrialResult:
    return TrialResult(
        config=record.config,
        class_il=[list(row) for row in record.class_il],
        task_il=[list(row) for row in record.task_il],
        confidence=list(record.confidence),
        diverged_at=record.diverged_at,
        title=record.title,
        tasks=record.tasks or (),
        class_names=record.class_names or (),
    )
