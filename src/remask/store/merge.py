"""Merge the trials of another store."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from remask.files import AnyPath
from remask.record import TrialRecord
from remask.store.errors import StoreError
from remask.store.store import Store

Preferred = Literal["ours", "theirs"]
_MEASURED = (
    "status", "diverged_at", "class_il", "task_il", "validation_class_il", "validation_task_il",
    "confidence", "curve", "choices",
)  # fmt: skip
_MOST_NAMED = 5


@dataclass(frozen=True)
class Merged:
    """The numbers of trials in a merge."""

    read: int
    new: int
    """Trials that the store did not have, or had as failed."""
    replaced: int
    """Trials that replaced another result."""
    kept: int
    """Trials whose other result in the store was kept."""


def merge(store: Store, other: AnyPath, *, prefer: Preferred | None = None) -> Merged:
    """Add the trials of another store to this one, all or, if this raises, none.

    The other store's trials stay as they are. A trial in both must have the same result in both,
    unless `prefer` names the store whose result to keep; a failed trial is replaced by one that did
    not fail. Raises StoreError.
    """
    other = Path(other)
    if other.exists() and other.samefile(store.path):
        raise StoreError(f"{other} is the store itself: there is nothing to merge.")
    read = 0
    differing: list[TrialRecord] = []

    def replaces(mine: TrialRecord, theirs: TrialRecord) -> bool:
        same = all(getattr(mine, name) == getattr(theirs, name) for name in _MEASURED)
        if same or theirs.status == "failed":
            return False
        differing.append(theirs)
        return prefer == "theirs"

    def all_or_none() -> Iterator[TrialRecord]:
        nonlocal read
        with Store(other, create=False) as source:
            for record in source.checked():
                read += 1
                yield record
        if differing and prefer is None:  # within the transaction, so nothing is written
            raise StoreError(_refusal(differing, store.path, other))

    written = store.add_all(all_or_none(), replace=replaces)
    replaced = len(differing) if prefer == "theirs" else 0
    return Merged(read, written - replaced, replaced, len(differing) - replaced)


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
        f"Nothing was merged. Choose with --prefer ours or --prefer theirs. Another kind of "
        f"processor, or another version of your own code, may be the reason."
    )
