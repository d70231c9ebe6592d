"""The table of trials, and a record as a row of it.

A row holds a `TrialSummary`, a digest of `details`, a digest of both, and `details`: the rest of
the record as JSON. An index holds all but the details, so a list reads the index alone.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from remask.record import TrialRecord
from remask.store.cells import TrialSummary, cell_config, summary_of
from remask.store.errors import StoreError
from remask.store.scores import SCORES

SUMMARY = (*TrialSummary._fields, "details_digest", "digest")
"""The columns of a list."""
COLUMNS = (*SUMMARY, "details")
ORDER = ("benchmark", "method", "mask", "buffer", "seed", "config_hash")
"""By contents, not by age: stores with the same trials have the same order."""
TABLE = f"""
CREATE TABLE trials (
    config_hash TEXT NOT NULL PRIMARY KEY,
    benchmark TEXT NOT NULL,
    method TEXT NOT NULL,
    mask REAL,
    buffer INTEGER NOT NULL,
    seed INTEGER NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('finished', 'diverged', 'failed')),
    title TEXT,
    created TEXT NOT NULL,
    error TEXT,
    seconds REAL NOT NULL,
    num_tasks INTEGER NOT NULL,
    num_classes INTEGER NOT NULL,
    classes TEXT NOT NULL,
    hardware TEXT NOT NULL,
    cell TEXT NOT NULL,
    packed BLOB NOT NULL,
    details_digest BLOB NOT NULL,
    digest BLOB NOT NULL,
    details TEXT NOT NULL
);
CREATE INDEX trials_in_order ON trials ({", ".join(dict.fromkeys((*ORDER, *SUMMARY)))})
"""
_IN_SUMMARY = {"config", "status", "title", "created", "error", "seconds"}


def to_row(record: TrialRecord) -> tuple[Any, ...]:
    """The values of COLUMNS."""
    details = record.model_dump_json(exclude=_IN_SUMMARY)
    return sealed(summary_of(record), details)


def sealed(summary: TrialSummary, details: str) -> tuple[Any, ...]:
    """A row of these contents with its digests."""
    # + 0.0: SQLite stores -0.0 as 0.0.
    plain = (value + 0.0 if isinstance(value, float) else value for value in summary)
    values = (*plain, _sha(details.encode()))
    return (*values, _digest(values), details)


def summary_from(row: tuple[Any, ...], path: Path) -> TrialSummary:
    """The summary in the values of SUMMARY; raises StoreError if they are damaged."""
    try:
        if row[-1] != _digest(row[:-1]):
            raise ValueError("its contents do not match its digest")
        summary = TrialSummary(*row[:-2])
        if len(summary.packed) != 8 * len(SCORES):
            raise ValueError(f"it has not {len(SCORES)} metrics")
        cell_config(summary.cell)
    except (ValueError, TypeError, RecursionError) as error:
        raise _damaged(row[0], path, str(error)) from error
    return summary


def record_from(row: tuple[Any, ...], path: Path) -> TrialRecord:
    """The record in the values of COLUMNS; raises StoreError if the row is damaged."""
    *columns, details = row
    summary = summary_from(tuple(columns), path)
    if columns[-2] != _sha(str(details).encode(errors="replace")):
        raise _damaged(summary.config_hash, path, "its details do not match their digest")
    try:
        shared = {name: getattr(summary, name) for name in _IN_SUMMARY - {"config"}}
        config = cell_config(summary.cell).model_copy(update={"seed": summary.seed})
        return TrialRecord.model_validate({**json.loads(details), **shared, "config": config})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise StoreError(
                f"the trial {summary.config_hash} in {path} has {place}, which this remask does "
                f"not support: a newer one stored it. Upgrade remask to read it."
            ) from error
        raise _damaged(summary.config_hash, path, f"{place}: {first['msg']}") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise _damaged(summary.config_hash, path, str(error)) from error


def check_row(row: tuple[Any, ...], record: TrialRecord, path: Path) -> None:
    """Raise StoreError unless the row is that of its record in every column."""
    for name, found, expected in zip(COLUMNS, row, to_row(record), strict=True):
        if found != expected:
            reason = f"{name} is {found!r:.80}, its record implies {expected!r:.80}"
            raise _damaged(row[0], path, reason)


def _digest(values: tuple[Any, ...]) -> bytes:
    *plain, packed, details_digest = values
    return _sha(ascii(plain).encode() + packed + details_digest)


def _sha(data: bytes) -> bytes:
    """The first half of the SHA-256."""
    return hashlib.sha256(data).digest()[:16]


def _damaged(config_hash: object, path: Path, reason: str) -> StoreError:
    return StoreError(
        f"the trial {config_hash} in {path} is damaged: {reason}. To delete it: "
        f"`remask results delete --hash {config_hash}`, then run the trial again."
    )
