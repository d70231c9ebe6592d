"""Jobs: the stacks of trials that a run consists of."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from remask.config import TrialConfig
from remask.names import system_name
from remask.results import config_hash


@dataclass(frozen=True)
class Job:
    """Trials that run as one stack."""

    configs: tuple[TrialConfig, ...]

    @property
    def name(self) -> str:
        """What identifies the job: its configs, in their order."""
        hashes = " ".join(config_hash(config) for config in self.configs)
        return hashlib.sha256(hashes.encode()).hexdigest()[:16]

    def title(self) -> str:
        """What it is, for people: its systems, benchmark, buffer and seeds."""
        first = self.configs[0]
        systems = dict.fromkeys(system_name(config.method, config.mask) for config in self.configs)
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
    """Divide trials into stacks of at most `largest` of their like, so that no worker idles.

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
