"""Runs: a set of trials asked for together, and the folder that lets it be continued.

Beside a store `results.db` lies `results.db.runs/`, with one folder per unfinished run:
`run.json` (which trials, in which stacks), a lock, and a folder of checkpoints per stack. A run
that is asked for again finds its folder by the hash of its trials, and goes on. When the last
trial is in the store, the folder goes.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from remask.config import TrialConfig
from remask.durable import (
    AnyPath,
    Lock,
    make_folder,
    read_limited,
    remove_quietly,
    write_atomically,
)
from remask.errors import RemaskError
from remask.launch.events import Event, Failed, Finished
from remask.launch.execute import Options
from remask.launch.jobs import Job, plan_jobs
from remask.launch.pool import run_jobs
from remask.launch.provenance import provenance
from remask.launch.signals import StopRequest
from remask.store import Store, TrialRecord, config_hash

_LARGEST_PLAN = 256 * 1024 * 1024


class RunError(RemaskError):
    """A run folder that cannot be used; the message says why, and what to do."""


class _Plan(BaseModel):
    """What `run.json` holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    version: Literal[1] = 1
    again: bool
    """Whether to run and replace what the store already has."""
    stacks: list[list[TrialConfig]]


@dataclass(frozen=True)
class Run:
    """An unfinished run: its folder, and its stacks."""

    folder: Path
    jobs: list[Job]
    again: bool

    @property
    def name(self) -> str:
        """The hash of its trials."""
        return self.folder.name


def runs_folder(store: AnyPath) -> Path:
    """Where the runs of a store are kept."""
    store = Path(store)
    return store.with_name(store.name + ".runs")


def unfinished_runs(store: AnyPath) -> list[Run]:
    """The runs that can be continued, oldest first."""
    plans = sorted(runs_folder(store).glob("*/run.json"), key=lambda path: path.stat().st_mtime)
    return [_open(plan.parent) for plan in plans]


def plan_run(
    store: Store,
    configs: Sequence[TrialConfig],
    *,
    workers: int,
    largest_stack: Callable[[TrialConfig], int],
    again: bool,
) -> Run | None:
    """The run for these trials: the one begun earlier, or a new one of what the store lacks.

    `largest_stack` says how many trials like a given one to train as one. None if there is nothing
    to do. With `again`, what the store has is run once more.
    """
    wanted = list(dict.fromkeys(configs))
    hashes = sorted(config_hash(config) for config in wanted)
    mark = "again" if again else "missing"
    name = hashlib.sha256(" ".join([mark, *hashes]).encode()).hexdigest()[:12]
    folder = runs_folder(store.path) / name
    if (folder / "run.json").exists():
        begun = _open(folder)
        if not {config for job in begun.jobs for config in job.configs} <= set(wanted):
            raise RunError(
                f"{folder / 'run.json'} is the plan of other trials than its name says. Nothing "
                f"was changed. Move the folder {folder} away to begin this run anew."
            )
        if all(len(job.configs) <= largest_stack(job.configs[0]) for job in begun.jobs):
            return begun
        # Smaller stacks are wanted now, perhaps because the larger ones failed.
    missing = [c for c in wanted if again or not store.is_done(config_hash(c))]
    if not missing:
        return None
    jobs = plan_jobs(missing, workers, largest_stack)
    plan = _Plan(again=again, stacks=[list(job.configs) for job in jobs])
    sealed = _seal(plan)
    if len(sealed) > _LARGEST_PLAN:
        raise RunError(
            f"the plan of these {len(missing):,} trials would be too large to be read back. "
            f"Nothing was run. Divide them into several runs."
        )
    make_folder(folder)
    write_atomically(folder / "run.json", sealed)
    return Run(folder, jobs, again)


def continue_run(
    store: Store, run: Run, *, workers: int, options: Options, stop: StopRequest
) -> Iterator[Event]:
    """Run what is left of a run, and put every finished trial into the store.

    Yields the jobs' events. When all is done, removes the run's folder.
    """
    with Lock(run.folder / "lock"):
        if not (run.folder / "run.json").exists():
            return  # another process finished it while this one waited
        by_name = {job.name: job for job in run.jobs}
        jobs = [(job, run.folder / job.name) for job in jobs_left(store, run)]
        failed = False
        for event in run_jobs(jobs, workers=workers, options=options, stop=stop):
            if isinstance(event, Finished):
                for record in _records(event):
                    store.add(record, replace=run.again)
                if run.again:
                    write_atomically(_mark(run, by_name[event.job]), b"")
                shutil.rmtree(run.folder / event.job, ignore_errors=True)
            elif isinstance(event, Failed):
                failed = True
                _note_failure(store, by_name[event.job], event)
            yield event
        if not failed:
            # The plan goes first: a folder without one is nothing, whatever else is left in it.
            remove_quietly(run.folder / "run.json")
            shutil.rmtree(run.folder, ignore_errors=True)


def jobs_left(store: Store, run: Run) -> list[Job]:
    """Those of a run's jobs that are not done."""
    return [job for job in run.jobs if not _is_done(store, run, job)]


def _is_done(store: Store, run: Run, job: Job) -> bool:
    if run.again:  # being in the store says nothing then: only this run's own mark does
        return _mark(run, job).exists()
    return all(store.is_done(config_hash(config)) for config in job.configs)


def _mark(run: Run, job: Job) -> Path:
    """A file whose presence says that the job was run again, and its results replaced."""
    return run.folder / f"{job.name}.done"


def _open(folder: Path) -> Run:
    path = folder / "run.json"
    try:
        plan = _unseal(read_limited(path, _LARGEST_PLAN))
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(
            f"{path} cannot be read as the plan of a run ({_first_line(error)}). Nothing was "
            f"changed. Move the folder {folder} away to begin that run anew."
        ) from None
    return Run(folder, [Job(tuple(stack)) for stack in plan.stacks], plan.again)


def _seal(plan: _Plan) -> bytes:
    """The plan with a checksum: an altered digit would train something else without a word."""
    body = plan.model_dump(mode="json")
    return json.dumps({"sha256": _checksum(body), "plan": body}, indent=1).encode()


def _unseal(data: bytes) -> _Plan:
    """Read what `_seal` wrote; raises ValueError."""
    match json.loads(data):
        case {"sha256": str(checksum), "plan": dict(body)} if checksum == _checksum(body):
            return _Plan.model_validate(body)
    raise ValueError("its checksum is wrong or missing")


def _checksum(body: object) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _records(event: Finished) -> Iterator[TrialRecord]:
    for result in event.results:
        yield TrialRecord(
            config=result.config,
            title=result.title,
            status="finished" if result.diverged_at is None else "diverged",
            diverged_at=result.diverged_at,
            error=None,
            class_il=result.class_il,
            task_il=result.task_il,
            confidence=result.confidence,
            tasks=result.tasks,
            class_names=result.class_names,
            own_code=event.own_code,
            started=event.started,
            # Trials of a stack run at once: each has its share of the time.
            seconds=event.seconds / len(event.results),
            **provenance(),
        )


def _note_failure(store: Store, job: Job, event: Failed) -> None:
    for config in job.configs:
        store.add(TrialRecord.failure(config, event.error, **provenance()))
