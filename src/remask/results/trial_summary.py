"""The summary of a trial: what lists and tables need of it, without its record."""

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple, Protocol

from remask.classes import Tasks
from remask.config import TrialConfig
from remask.names import system_name
from remask.record import TrialRecord
from remask.results.trial_scores import SCORES, packed_scores, unpacked


class Learnt(NamedTuple):
    """What trials must have in common to be averaged or drawn together, beside their config."""

    num_tasks: int
    num_classes: int
    classes: str | None
    """A fingerprint of the tasks and the names of the classes; None if they are not known."""


class Trial(Protocol):
    """What a record and a summary have in common."""

    @property
    def seed(self) -> int:
        """The seed of its config."""

    @property
    def title(self) -> str | None:
        """What a custom method calls itself, if not after its class."""

    @property
    def created(self) -> datetime:
        """When its record was made."""


class TrialSummary(NamedTuple):
    """A trial in a list: its config, how it ended and its metrics."""

    config_hash: str
    cell: TrialConfig
    """The config with seed 0."""
    seed: int
    status: str
    title: str | None
    created: datetime
    error: str | None
    seconds: float
    learnt: Learnt
    hardware: str
    packed: bytes
    """All metrics in the order of SCORES as float64, little-endian."""

    @property
    def scores(self) -> dict[str, float]:
        """All metrics by name; NaN where one is not defined."""
        return dict(zip(SCORES, unpacked([self.packed])[0].tolist(), strict=True))

    @property
    def system(self) -> str:
        """The method with its mask, as tables print it."""
        return system_name(self.cell.method, self.cell.mask, self.title)


def summary_of(record: TrialRecord) -> TrialSummary:
    """Summarise a record."""
    return TrialSummary(
        config_hash=record.config_hash,
        cell=record.config.cell,
        seed=record.seed,
        status=record.status,
        title=record.title,
        created=record.created,
        error=record.error,
        seconds=record.seconds,
        learnt=learnt_by(record),
        hardware=hardware_of(record),
        packed=packed_scores(record),
    )


def learnt_by(record: TrialRecord) -> Learnt:
    """What a trial has learnt, as far as its record contains it."""
    classes = _fingerprint(record.tasks, record.class_names) if record.tasks else None
    return Learnt(len(record.class_il), len(record.confidence), classes)


@lru_cache(maxsize=256)
def _fingerprint(tasks: Tasks, class_names: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps([tasks, class_names]).encode()).hexdigest()[:16]


def hardware_of(record: TrialRecord) -> str:
    """What a trial's rounding depends on: the processor or device, and torch; empty: not known."""
    computed_on = record.machine.get("device") or record.machine.get("processor")
    torch = record.versions.get("torch")
    if not computed_on:
        return ""
    return f"{computed_on}, torch {torch}" if torch else str(computed_on)
