"""Jobs and runs: which trials are trained in which stacks, kept on disk beside the store.

Beside a store `results.db` is `results.db.runs/`, with one folder per unfinished run: `run.json`
(the stacks), a lock, and a folder of checkpoints per stack. A run that is asked for again finds its
folder by the hash of its trials, and continues. The folder is removed when all trials are stored.
"""

import hashlib
import json
import math
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from remask.config import TrialConfig
from remask.data.benchmark import Benchmark, load_benchmark
from remask.engine.measurements import TaskPoint
from remask.errors import RemaskError
from remask.files import (
    AnyPath,
    DurabilityError,
    Lock,
    LockHeldError,
    read_limited,
    remove_quietly,
    write_atomically,
)
from remask.names import system_name
from remask.own_code import own_title
from remask.record import TrialRecord
from remask.store.store import Store

_LARGEST_PLAN = 256 << 20


@dataclass(frozen=True)
class Job:
    """Trials that run as one stack."""

    configs: tuple[TrialConfig, ...]

    @cached_property
    def name(self) -> str:
        """A hash of its configs, in their order."""
        hashes = " ".join(config.hash for config in self.configs)
        return hashlib.sha256(hashes.encode()).hexdigest()[:16]

    def title(self) -> str:
        """Its systems, benchmark, buffer and seeds, for people."""
        first = self.configs[0]
        systems = {system_name(c.method, c.mask, own_title(c.method)): None for c in self.configs}
        seeds = {str(config.seed): None for config in self.configs}
        buffer = f", buffer {first.buffer}" if first.buffer else ""
        numbers = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}"
        return f"{', '.join(systems)} on {first.benchmark}{buffer}, {numbers}"


@dataclass(frozen=True)
class Work:
    """A job and the folder of its checkpoints."""

    job: Job
    folder: Path


def plan_jobs(
    configs: Sequence[TrialConfig], workers: int, largest: Callable[[TrialConfig], int]
) -> list[Job]:
    """Divide trials into stacks of at most `largest` similar ones, so that no worker idles.

    Trials keep the order in which they were asked for.
    """
    by_shape: dict[object, list[TrialConfig]] = {}
    for config in configs:
        by_shape.setdefault(config.shape(), []).append(config)
    jobs = []
    for group in by_shape.values():
        rounds = math.ceil(len(group) / largest(group[0]) / workers)
        stacks = min(rounds * workers, len(group))
        ends = [-(-len(group) * number // stacks) for number in range(stacks + 1)]
        jobs += [Job(tuple(group[start:end])) for start, end in pairwise(ends)]
    return jobs


def benchmark_of(config: TrialConfig) -> Benchmark:
    """The benchmark of a trial, split as in its config."""
    return _load(config.benchmark, **config.split)


_load = lru_cache(maxsize=1)(load_benchmark)  # the jobs of a process mostly have one benchmark


class RunError(RemaskError):
    """A run folder that cannot be used; the message says why, and what to do."""


class _Plan(BaseModel, frozen=True, extra="forbid"):
    """The content of `run.json`."""

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

    @property
    def configs(self) -> list[TrialConfig]:
        """Its trials."""
        return [config for job in self.jobs for config in job.configs]

    @property
    def plan(self) -> Path:
        """The file of its stacks; a folder without one is not a run."""
        return self.folder / "run.json"

    @property
    def lock(self) -> Path:
        """Held by a process while it works on the run or changes its plan."""
        return self.folder / "lock"

    def checkpoints(self, job: Job) -> Path:
        """The folder for a job's checkpoints."""
        return self.folder / job.name

    def mark(self, job: Job) -> Path:
        """A file that exists once the job was run again and its results replaced."""
        return self.folder / f"{job.name}.done"

    def jobs_left(self, store: Store) -> list[Job]:
        """The jobs that are not done."""
        if self.again:  # the store has had the trials before
            return [job for job in self.jobs if not self.mark(job).exists()]
        return [job for job in self.jobs if not all(store.is_done(c.hash) for c in job.configs)]

    def discard(self) -> None:
        """Remove it from the disk; its lock must be held."""
        remove_quietly(self.plan)  # first: a folder without a plan is not a run
        shutil.rmtree(self.folder, ignore_errors=True)


def runs_folder(store: AnyPath) -> Path:
    """The folder of a store's runs."""
    store = Path(store)
    return store.parent / f"{store.name}.runs"  # also of `/`, which has no name


def unfinished_runs(store: AnyPath) -> list[Run]:
    """The runs that can be continued, oldest first."""
    plans = sorted(runs_folder(store).glob("*/run.json"), key=lambda path: path.stat().st_mtime)
    return [read_plan(plan.parent) for plan in plans]


def plan_run(
    store: Store,
    configs: Sequence[TrialConfig],
    *,
    workers: int,
    largest_stack: Callable[[TrialConfig], int],
    again: bool,
) -> Run | None:
    """The run of these trials: the one begun earlier, or a new one of what the store lacks.

    `largest_stack` is how many trials like a given one to train as one. None: nothing to do. With
    `again`, stored trials are run again. Raises LockHeldError while another process works on this
    run.
    """
    wanted = list(dict.fromkeys(configs))
    identity = ["again" if again else "missing", *sorted(config.hash for config in wanted)]
    name = hashlib.sha256(" ".join(identity).encode()).hexdigest()[:12]
    run = Run(runs_folder(store.path) / name, [], again)
    missing = [c for c in wanted if again or not store.is_done(c.hash)]
    if not missing and not run.plan.exists():
        if run.folder.exists():  # of a process that died before it had a plan, or at the very end
            with suppress(LockHeldError, DurabilityError), Lock(run.lock):
                if not run.plan.exists():
                    run.discard()
        return None
    # Under the lock: a plan that another process works by must stay as it is.
    with Lock(run.lock):
        if run.plan.exists():
            begun = read_plan(run.folder)
            if not set(begun.configs) <= set(wanted):
                raise RunError(
                    f"{run.plan} is the plan of other trials. Nothing was changed. Move the folder "
                    f"{run.folder} away to start this run over."
                )
            if all(len(job.configs) <= largest_stack(job.configs[0]) for job in begun.jobs):
                return begun
            # Smaller stacks are asked for now, perhaps because larger ones failed.
        if not missing:
            run.discard()
            return None
        jobs = plan_jobs(missing, workers, largest_stack)
        write_plan(run, jobs)
    return replace(run, jobs=jobs)


def write_plan(run: Run, jobs: Sequence[Job]) -> None:
    """Write the jobs of the run, whose lock must be held."""
    stacks = [list(job.configs) for job in jobs]
    body = _Plan(again=run.again, stacks=stacks).model_dump(mode="json")
    # With a checksum: a changed digit would silently train something else.
    sealed = json.dumps({"sha256": _checksum(body), "plan": body}, indent=1).encode()
    write_atomically(run.plan, sealed)


def read_plan(folder: Path) -> Run:
    """The run in a folder."""
    path = folder / "run.json"
    try:
        match json.loads(read_limited(path, _LARGEST_PLAN)):
            case {"sha256": str(checksum), "plan": dict(body)} if checksum == _checksum(body):
                plan = _Plan.model_validate(body)
            case _:
                raise ValueError("its checksum is wrong or missing")
    except (OSError, ValueError, RecursionError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise RunError(
            f"{path} cannot be read as the plan of a run ({reason}). Nothing was changed. Move the "
            f"folder {folder} away to start that run over."
        ) from None
    return Run(folder, [Job(tuple(stack)) for stack in plan.stacks], plan.again)


def _checksum(body: object) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Advanced:
    """The progress of a job."""

    job: str
    task: int
    tasks: int
    steps_done: int
    total_steps: int
    accuracy: float
    """Mean Class-IL accuracy after the latest finished task; NaN before the first."""


@dataclass(frozen=True)
class Logged:
    """Losses and accuracies during training; those before a restart are repeated."""

    job: str
    trials: list[str]
    """The hashes of its S trials."""
    names: list[str]
    """The names of the losses of a point."""
    points: list[tuple[int, int, list[list[float]]]]
    """Steps taken, tasks learnt, and the losses [S, names] since the previous point."""
    tasks: list[TaskPoint]
    """Accuracies after tasks."""


@dataclass(frozen=True)
class Note:
    """A message for the user that does not stop the job."""

    job: str
    text: str


@dataclass(frozen=True)
class Finished:
    """The records of a job that ended."""

    job: str
    records: list[TrialRecord]


@dataclass(frozen=True)
class PickedUp:
    """Trials of a job that another process has stored."""

    job: str
    records: list[TrialRecord]


@dataclass(frozen=True)
class Failed:
    """A job that cannot continue."""

    job: str
    error: str
    traceback: str = ""
    """Empty for a user's mistake, which the message explains."""
    may_pass: bool = False
    """Whether another attempt in another process may succeed."""


@dataclass(frozen=True)
class Lost:
    """A job whose process died: another one can run it."""

    job: str
    error: str
    details: str = ""
    """A traceback, or the last lines that the process printed."""
    resumes: bool = True
    """Whether the next process has its latest checkpoint; otherwise it starts over."""


Event = Advanced | Logged | Note | Finished | PickedUp | Failed | Lost
