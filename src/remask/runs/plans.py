"""Plans of runs: which trials, in which stacks, on the disk beside the store.

Beside a store `results.db` lies `results.db.runs/`, with one folder per unfinished run:
`run.json` (which trials, in which stacks), a lock, and a folder of checkpoints per stack. A run
that is asked for again finds its folder by the hash of its trials, and goes on. When the last
trial is in the store, the folder goes.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from remask.config import TrialConfig
from remask.durable import AnyPath, read_limited, write_atomically
from remask.errors import RemaskError
from remask.names import system_name
from remask.own_code import own_title

_LARGEST_PLAN = 256 * 1024 * 1024


@dataclass(frozen=True)
class Job:
    """Trials that run as one stack."""

    configs: tuple[TrialConfig, ...]

    @property
    def name(self) -> str:
        """What identifies the job: its configs, in their order."""
        hashes = " ".join(config.hash for config in self.configs)
        return hashlib.sha256(hashes.encode()).hexdigest()[:16]

    def title(self) -> str:
        """What it is, for people: its systems, benchmark, buffer and seeds."""
        first = self.configs[0]
        systems = dict.fromkeys(
            system_name(config.method, config.mask, own_title(config.method))
            for config in self.configs
        )
        seeds = dict.fromkeys(str(config.seed) for config in self.configs)
        buffer = f", buffer {first.buffer}" * bool(first.buffer)
        numbers = f"seed{'s' * (len(seeds) > 1)} {', '.join(seeds)}"
        return f"{', '.join(systems)} on {first.benchmark}{buffer}, {numbers}"


@dataclass(frozen=True)
class Work:
    """A job, and where its checkpoints are."""

    job: Job
    folder: Path


def plan_jobs(
    configs: Sequence[TrialConfig], workers: int, largest: Callable[[TrialConfig], int]
) -> list[Job]:
    """Divide trials into stacks of at most `largest` similar ones, so that no worker idles.

    Trials come in the order asked for, so that what was asked for first is done first.
    """
    by_shape: dict[object, list[TrialConfig]] = {}
    for config in configs:
        by_shape.setdefault(config.shape(), []).append(config)
    jobs = []
    for group in by_shape.values():
        stacks = -(-len(group) // largest(group[0]))
        stacks = min(-(-stacks // workers) * workers, len(group))
        size, extra = divmod(len(group), stacks)
        start = 0
        for number in range(stacks):
            stop = start + size + (number < extra)
            jobs.append(Job(tuple(group[start:stop])))
            start = stop
    return jobs


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

    @property
    def configs(self) -> list[TrialConfig]:
        """Its trials."""
        return [config for job in self.jobs for config in job.configs]

    @property
    def plan(self) -> Path:
        """The file that says what it consists of; a folder without one is no run."""
        return self.folder / "run.json"

    @property
    def lock(self) -> Path:
        """What a process holds while it works on the run, or changes its plan."""
        return self.folder / "lock"

    def checkpoints(self, job: Job) -> Path:
        """The folder for a job's checkpoints."""
        return self.folder / job.name

    def mark(self, job: Job) -> Path:
        """A file whose presence says that the job was run again, and its results replaced."""
        return self.folder / f"{job.name}.done"


def runs_folder(store: AnyPath) -> Path:
    """Where the runs of a store are kept."""
    store = Path(store)
    return store.parent / f"{store.name}.runs"  # also of `/`, which has no name


def unfinished_runs(store: AnyPath) -> list[Run]:
    """The runs that can be continued, oldest first."""
    plans = sorted(runs_folder(store).glob("*/run.json"), key=lambda path: path.stat().st_mtime)
    return [read_plan(plan.parent) for plan in plans]


def write_plan(run: Run, jobs: Sequence[Job]) -> None:
    """Write which jobs the run consists of; its lock must be held."""
    body = _Plan(again=run.again, stacks=[list(job.configs) for job in jobs]).model_dump(
        mode="json"
    )
    # A checksum, since an altered digit would silently train something else.
    sealed = json.dumps({"sha256": _checksum(body), "plan": body}, indent=1).encode()
    if len(sealed) > _LARGEST_PLAN:
        trials = sum(len(job.configs) for job in jobs)
        raise RunError(
            f"the plan of these {trials:,} trials would be too large to be read back. Nothing was "
            f"run. Divide them into several runs."
        )
    write_atomically(run.plan, sealed)


def read_plan(folder: Path) -> Run:
    """The run in a folder."""
    path = folder / "run.json"
    try:
        plan = _unseal(read_limited(path, _LARGEST_PLAN))
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(
            f"{path} cannot be read as the plan of a run ({_first_line(error)}). Nothing was "
            f"changed. Move the folder {folder} away to start that run over."
        ) from None
    return Run(folder, [Job(tuple(stack)) for stack in plan.stacks], plan.again)


def _unseal(data: bytes) -> _Plan:
    """Read what `write_plan` wrote; raises ValueError."""
    match json.loads(data):
        case {"sha256": str(checksum), "plan": dict(body)} if checksum == _checksum(body):
            return _Plan.model_validate(body)
    raise ValueError("its checksum is wrong or missing")


def _checksum(body: object) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
