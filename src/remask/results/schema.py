"""The table of trials: its columns, and a record as a row.

The version of a file is its `PRAGMA user_version`. A change of the columns, or of SCORES, whose
values a row holds, needs another VERSION.

Every row has two digests. `digest` covers all its columns. `summary_digest` covers the columns in
`SUMMARY`, which an index holds as well, so that a list of trials is read, and checked, without the
records.
"""

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from remask.config import TrialConfig
from remask.record import TrialRecord, write_moment
from remask.results.errors import StoreError
from remask.results.trial_scores import SCORES
from remask.results.trial_summary import Learnt, TrialSummary, summary_of

VERSION = 7

_AS_JSON = (
    "config", "class_il", "task_il", "validation_class_il", "validation_task_il", "confidence",
    "answers", "curve", "losses", "choices", "tasks", "class_names", "own_code", "versions",
    "machine",
)  # fmt: skip
_AS_IS = (
    "status", "diverged_at", "error", "started", "seconds", "created", "title", "flops",
    "memory_bytes",
)  # fmt: skip
_REPEATED = ("benchmark", "method", "mask", "buffer", "seed")

SUMMARY = ("config_hash", "cell", "summary", "scores")
"""The columns that a summary is read from: the config with seed 0, a JSON list, and metrics."""
_INDEXED = (*_REPEATED, *SUMMARY, "summary_digest", "status", "created", "title")
COLUMNS = (
    *(*SUMMARY, "summary_digest"), *_REPEATED, *_AS_JSON, *_AS_IS, "source_commit", "digest",
)  # fmt: skip


def make_tables(connection: sqlite3.Connection) -> None:
    """Make the table of a new store, and its index."""
    # benchmark ... seed repeat what config contains: they are what people filter and sort by.
    connection.execute(
        f"""
        CREATE TABLE trials (
            config_hash TEXT NOT NULL PRIMARY KEY,
            benchmark TEXT NOT NULL,
            method TEXT NOT NULL,
            mask REAL,
            buffer INTEGER NOT NULL,
            seed INTEGER NOT NULL,
            cell TEXT NOT NULL,
            summary TEXT NOT NULL,
            scores BLOB NOT NULL,
            summary_digest TEXT NOT NULL,
            status TEXT NOT NULL CHECK (status IN ('finished', 'diverged', 'failed')),
            title TEXT,
            created TEXT NOT NULL,
            error TEXT,
            seconds REAL NOT NULL,
            diverged_at INTEGER,
            started TEXT NOT NULL,
            flops REAL,
            memory_bytes INTEGER,
            source_commit TEXT,
            {", ".join(f"{name} TEXT NOT NULL" for name in _AS_JSON)},
            digest TEXT NOT NULL
        )
        """
    )
    connection.execute(f"CREATE INDEX trials_in_order ON trials ({', '.join(_INDEXED)})")


def to_row(record: TrialRecord) -> dict[str, object]:
    """Write the record's columns, by name."""
    written = record.model_dump(mode="json")
    row = {
        **_summary_row(record),
        **_repeated(record),
        **{name: json.dumps(written[name], allow_nan=False) for name in _AS_JSON},
        **{name: written[name] for name in _AS_IS},
        "source_commit": record.commit,
    }
    row["digest"] = digest_of(row[name] for name in COLUMNS[:-1])
    return row


def from_row(row: sqlite3.Row, path: Path) -> TrialRecord:
    """Read the record of a row, checking every part of it."""
    if row["digest"] != digest_of(tuple(row)[:-1]):
        raise _damaged(row["config_hash"], path, "its contents do not match its digest")
    try:
        record = TrialRecord.model_validate(
            {
                **{name: json.loads(row[name]) for name in _AS_JSON},
                **{name: row[name] for name in _AS_IS},
                "commit": row["source_commit"],
            },
            context={"stored": True},
        )
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise StoreError(
                f"the trial {row['config_hash']} in {path} has {place}, which this remask does "
                f"not know: it was stored by a newer one. Upgrade remask to read it."
            ) from error
        raise _damaged(row["config_hash"], path, f"{place}: {first['msg']}") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise _damaged(row["config_hash"], path, str(error)) from error
    _check_columns(row, {"config_hash": record.config_hash, **_repeated(record)}, path)
    return record


def check_summary(row: sqlite3.Row, record: TrialRecord, path: Path) -> None:
    """Raise StoreError unless the summary in the row is that of the record."""
    _check_columns(row, _summary_row(record), path)


def summary_from_row(
    row: Sequence[Any], path: Path, cells: dict[bytes, TrialConfig]
) -> TrialSummary:
    """Read a summary from the columns SUMMARY and its digest, texts as bytes.

    `cells` holds the configs that were read before, by their texts.
    """
    config_hash, cell, summary, scores, digest = row
    try:
        if digest != summary_digest(config_hash, cell, summary, scores).encode():
            raise ValueError("its summary does not match its digest")
        config = cells.get(cell)
        if config is None:
            stored = TrialConfig.model_validate(json.loads(cell), context={"stored": True})
            config = cells.setdefault(cell, stored)
        seed, status, title, created, error, seconds, num_tasks, num_classes, *rest = json.loads(
            summary
        )
        classes, hardware = rest
        return TrialSummary(
            config_hash=config_hash.decode(),
            cell=config,
            seed=int(seed),
            status=status,
            title=title,
            created=datetime.fromisoformat(created),
            error=error,
            seconds=float(seconds),
            learnt=Learnt(int(num_tasks), int(num_classes), classes),
            hardware=hardware,
            packed=_checked_scores(scores),
        )
    except (ValueError, TypeError, AttributeError, RecursionError) as reason:
        name = config_hash.decode(errors="replace") if isinstance(config_hash, bytes) else "?"
        raise _damaged(name, path, str(reason)) from reason


def summary_digest(config_hash: bytes, cell: bytes, summary: bytes, scores: bytes) -> str:
    """SHA-256 of the columns SUMMARY, shortened to 32 hex digits."""
    # The first three have no line breaks.
    joined = b"\n".join((config_hash, cell, summary, scores))
    return hashlib.sha256(joined).hexdigest()[:32]


def digest_of(values: Iterable[object]) -> str:
    """SHA-256, shortened to 32 hex digits, of values as SQLite returns them."""
    # + 0.0: SQLite stores -0.0 as 0.
    plain = [
        value.hex()
        if isinstance(value, bytes)
        else value + 0.0
        if isinstance(value, float)
        else value
        for value in values
    ]
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()[:32]


def _summary_row(record: TrialRecord) -> dict[str, object]:
    found = summary_of(record)
    created = write_moment(found.created)
    values = (found.seed, found.status, found.title, created, found.error, found.seconds)
    summary = json.dumps([*values, *found.learnt, found.hardware])
    cell, hashed = found.cell.canonical, found.config_hash
    digest = summary_digest(hashed.encode(), cell.encode(), summary.encode(), found.packed)
    row = dict(zip(SUMMARY, (hashed, cell, summary, found.packed), strict=True))
    return {**row, "summary_digest": digest}


def _checked_scores(packed: object) -> bytes:
    if not isinstance(packed, bytes) or len(packed) != 8 * len(SCORES):
        raise ValueError(f"scores: {len(SCORES)} numbers are needed")
    return packed


def _repeated(record: TrialRecord) -> dict[str, object]:
    return {name: getattr(record.config, name) for name in _REPEATED}


def _check_columns(row: sqlite3.Row, expected: dict[str, object], path: Path) -> None:
    for name, value in expected.items():
        if row[name] != value:
            reason = f"{name} is {row[name]!r}, its record implies {value!r}"
            raise _damaged(row["config_hash"], path, reason)


def _damaged(config_hash: object, path: Path, reason: str) -> StoreError:
    return StoreError(
        f"the trial {config_hash} in {path} is damaged: {reason}. To delete it: "
        f"`remask results delete --hash {config_hash}`, then run the trial again."
    )
