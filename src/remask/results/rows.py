"""A record as a row of the table, and back. All columns are text or numbers."""

import json
import sqlite3
from pathlib import Path

from pydantic import ValidationError

from remask.results.errors import StoreError
from remask.results.record import TrialRecord

_AS_JSON = (
    "config", "class_il", "task_il", "validation_class_il", "validation_task_il", "confidence",
    "tasks", "class_names", "own_code", "versions", "machine",
)  # fmt: skip
_AS_IS = ("status", "diverged_at", "error", "started", "seconds", "created", "title")
_REPEATED = ("benchmark", "method", "mask", "buffer", "seed")

COLUMNS = ("config_hash", *_REPEATED, *_AS_JSON, *_AS_IS, "source_commit")


def to_row(record: TrialRecord) -> dict[str, object]:
    """Write the record's columns, by name."""
    written = record.model_dump(mode="json")
    return {
        "config_hash": record.config_hash,
        **_repeated(record),
        **{name: json.dumps(written[name], allow_nan=False) for name in _AS_JSON},
        **{name: written[name] for name in _AS_IS},
        "source_commit": record.commit,
    }


def from_row(row: sqlite3.Row, path: Path) -> TrialRecord:
    """Read the record of a row, checking every part of it."""
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
        raise _damaged(row, path, f"{place}: {first['msg']}") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise _damaged(row, path, str(error)) from error
    columns = {"config_hash": record.config_hash, **_repeated(record)}
    for name, value in columns.items():
        if row[name] != value:
            raise _damaged(row, path, f"{name} is {row[name]!r}, its config says {value!r}")
    return record


def _repeated(record: TrialRecord) -> dict[str, object]:
    return {name: getattr(record.config, name) for name in _REPEATED}


def _damaged(row: sqlite3.Row, path: Path, reason: str) -> StoreError:
    return StoreError(
        f"the trial {row['config_hash']} in {path} is damaged: {reason}. To be rid of it: "
        f"`remask results delete --hash {row['config_hash']}`, then run the trial again."
    )
