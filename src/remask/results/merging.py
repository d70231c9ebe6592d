"""The trials of two stores in one."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from remask.durable import AnyPath
from remask.record import TrialRecord
from remask.results.database import check_pages, copy_database, open_database
from remask.results.errors import StoreError
from remask.results.schema import COLUMNS, check_summary, from_row
from remask.results.store import Store

Preferred = Literal["ours", "theirs"]
_MEASURED = (
    "status", "diverged_at", "class_il", "task_il", "validation_class_il", "validation_task_il",
    "confidence", "curve", "choices",
)  # fmt: skip
_MOST_NAMED = 5
_PATIENCE = 30.0  # seconds to wait while another process writes


@dataclass(frozen=True)
class Merged:
    """What became of the trials of another store."""

    read: int
    new: int
    """How many the store did not have, or had as failed."""
    replaced: int
    """How many took the place of another result."""
    kept: int
    """How many gave way to another result that the store has."""


def merge(store: Store, other: AnyPath, *, prefer: Preferred | None = None) -> Merged:
    """Add the trials of another store to this one, all or, if this raises, none.

    The other one is only read. A trial that both have must have shown the same in both, unless
    `prefer` says whose result stands; one that failed gives way to one that did not. Raises
    StoreError.
    """
    other = Path(other)
    if other.exists() and other.samefile(store.path):
        raise StoreError(f"{other} is the store itself: there is nothing to merge.")
    read = 0
    differing: list[TrialRecord] = []

    def replaces(mine: TrialRecord, theirs: TrialRecord) -> bool:
        if theirs.status == "failed" or _show_the_same(mine, theirs):
            return False
        differing.append(theirs)
        return prefer == "theirs"

    def all_or_none() -> Iterator[TrialRecord]:
        nonlocal read
        for record in read_store(other):
            read += 1
            yield record
        if differing and prefer is None:  # raised while nothing is written for good
            raise StoreError(_refusal(differing, store.path, other))

    written = store.add_all(all_or_none(), replace=replaces)
    replaced = len(differing) if prefer == "theirs" else 0
    return Merged(read, written - replaced, replaced, len(differing) - replaced)


def read_store(path: AnyPath, damaged: list[StoreError] | None = None) -> Iterator[TrialRecord]:
    """Read and check all of a store, trial by trial, and leave it as it is.

    What is wrong with damaged trials is appended to `damaged`, or raised without it.
    """
    path = Path(path)
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "copy.db"
        copy_database(path, copy, timeout=_PATIENCE)
        opened, _ = open_database(copy, create=False, timeout=_PATIENCE)
        with closing(opened) as connection:
            connection.row_factory = sqlite3.Row
            # Damaged text is let through to where rows are checked.
            connection.text_factory = lambda raw: raw.decode(errors="replace")
            rows = connection.execute(f"SELECT {', '.join(COLUMNS)} FROM trials")
            for row in rows:
                try:
                    record = from_row(row, path)
                    check_summary(row, record, path)
                except StoreError as error:
                    if damaged is None:
                        raise
                    damaged.append(error)
                    continue
                yield record
            try:
                check_pages(connection, path)
            except StoreError as error:
                if damaged is None:
                    raise
                damaged.append(error)


def _show_the_same(one: TrialRecord, other: TrialRecord) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in _MEASURED)


def _refusal(differing: list[TrialRecord], ours: Path, theirs: Path) -> str:
    named = [
        f"{record.config_hash[:12]} ({record.system} on {record.config.benchmark}, buffer "
        f"{record.config.buffer}, seed {record.seed})"
        for record in differing[:_MOST_NAMED]
    ]
    if len(differing) > _MOST_NAMED:
        named.append(f"{len(differing) - _MOST_NAMED} more")
    return (
        f"{ours} and {theirs} have different results of the same trials: {', '.join(named)}. "
        f"Nothing was merged. Say which to keep, --prefer ours or --prefer theirs; another kind "
        f"of processor, or another version of your own code, may be the reason."
    )
