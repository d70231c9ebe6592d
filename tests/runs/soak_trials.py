"""What the soak asks for, what must come of it, and whether it has."""

import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from remask.config import TrialConfig
from remask.engine import TrialStack
from remask.experiments.configs import trial_configs
from remask.experiments.job_queue import JobQueue
from remask.experiments.jobs import Job, Work, benchmark_of
from remask.methods import METHODS
from remask.store import Store, StoreError, TrialRecord

_SETTINGS = {"epochs": 2, "limit": 60}
_SEEDS = 6

Numbers = tuple[str, ...]
"""All numbers of a trial, to the last bit."""


@dataclass(frozen=True)
class Request:
    """Trials that one process is asked for."""

    methods: tuple[str, ...]
    masks: tuple[float | None, ...]
    seeds: range

    @classmethod
    def some(cls, methods: Sequence[str], chance: random.Random) -> "Request":
        """Some trials of some of these methods."""
        chosen = tuple(chance.sample(methods, chance.randint(1, len(methods))))
        masks: tuple[float | None, ...] = (None,)
        if not any(METHODS[name].unmaskable for name in chosen):
            masks = chance.choice([(None,), (None, -1.0), (float("-inf"), None)])
        first, number = chance.randrange(_SEEDS), chance.randint(1, 3)
        return cls(chosen, masks, range(first, first + number))

    def configs(self) -> list[TrialConfig]:
        """The trials, in the order asked for."""
        return [
            config
            for method in self.methods
            for config in trial_configs(
                benchmark="split-digits",
                method=method,
                masks=self.masks,
                seeds=self.seeds,
                overrides=_SETTINGS,
            )
        ]

    def command(self) -> list[str]:
        """The same for the command line."""
        masks = ("none" if mask is None else f"{mask:g}" for mask in self.masks)
        return [
            "run", "--benchmark", "split-digits", "--method", ",".join(self.methods),
            "--mask", ",".join(masks),
            "--seed", str(self.seeds.start), "--trials", str(len(self.seeds)),
            *(word for name, value in _SETTINGS.items() for word in (f"--{name}", str(value))),
        ]  # fmt: skip


@cache
def undisturbed(config: TrialConfig) -> Numbers:
    """The numbers of a trial that runs alone, in this process, from its beginning to its end."""
    stack = TrialStack([config], benchmark_of(config))
    for _ in stack.run():
        pass
    (record,) = stack.results()
    return numbers_of(record)


def numbers_of(record: TrialRecord) -> Numbers:
    """The numbers of a trial's record."""
    rows = (*record.class_il, *record.task_il, record.confidence)
    return tuple(value.hex() for row in rows for value in row)


@dataclass
class Expected:
    """What must be in the store."""

    wanted: dict[str, TrialConfig]
    """What is asked for, by hash."""
    known: set[str] = field(default_factory=set)
    """What was there before."""

    def faults(self, store: Path) -> list[str]:
        """What is wrong with the store; what it has is known from now on."""
        if not store.exists():
            return [f"lost: {name}" for name in sorted(self.known)]
        damaged: list[StoreError] = []
        with Store(store) as opened:
            records = list(opened.records(damaged=damaged))
        faults = [f"changed: a row is damaged: {error}" for error in damaged]
        with closing(sqlite3.connect(store)) as connection:
            for (said,) in connection.execute("PRAGMA integrity_check"):
                faults += [f"changed: the store is damaged: {said}"] * (said != "ok")
        done = [record for record in records if record.status != "failed"]
        hashes = [record.config_hash for record in done]
        faults += [f"doubled: {name} is stored twice" for name in hashes if hashes.count(name) > 1]
        faults += [f"lost: {name}" for name in sorted(self.known - set(hashes))]
        for record in done:
            if numbers_of(record) != undisturbed(self.wanted[record.config_hash]):
                faults.append(f"changed: {record.config_hash}")
        self.known = set(hashes)
        return faults

    def faults_at_the_end(self, store: Path) -> list[str]:
        """What is wrong when all that was asked for has been answered."""
        faults = self.faults(store)
        faults += [f"lost: {name} was never stored" for name in sorted({*self.wanted} - self.known)]
        runs = store.with_name(f"{store.name}.runs")
        allowed = {store, runs, runs / "claims"}
        left = sorted(path for path in store.parent.rglob("*") if path not in allowed)
        return faults + [f"left behind: {path.relative_to(store.parent)}" for path in left]


def watching(log: Path) -> None:
    """Make this process note what it computes although it was, or is being, computed.

    A trial that was begun without a checkpoint was claimed first and was not stored: if it is
    stored when it ends, it was computed twice. A stack that goes on from a checkpoint cannot be
    divided; what another process has stored of it meanwhile is computed once more on purpose.
    """
    begun: set[str] = set()
    begin, add = JobQueue._begin, Store.add

    def watched_begin(self: JobQueue, job: Job) -> Work:
        work = begin(self, job)
        names = {config.hash for config in job.configs}
        if any(work.folder.glob("checkpoint-*")):
            begun.difference_update(names)
        else:
            begun.update(names)
        return work

    def watched_add(self: Store, record: TrialRecord, *, replace: bool = False) -> bool:
        written = add(self, record, replace=replace)
        if not written and record.status != "failed" and record.config_hash in begun:
            with log.open("a") as stream:
                stream.write(f"doubled: {record.config_hash}\n")
        return written

    JobQueue._begin = watched_begin  # type: ignore[method-assign]
    Store.add = watched_add  # type: ignore[method-assign]
