"""The table of trials: its columns, a record as a row, the way from older versions.

The version of a file is its `PRAGMA user_version`. `MIGRATIONS[n]` brings a file from version n to
n + 1; the first one makes the table. To change the schema, append a migration; never edit one that
was released.
"""

import json
import sqlite3
from pathlib import Path

from pydantic import ValidationError

from remask.config import TrialConfig
from remask.results.completing import derived_split
from remask.results.database import Migration
from remask.results.errors import StoreError
from remask.results.record import TrialRecord

_AS_JSON = (
    "config", "class_il", "task_il", "validation_class_il", "validation_task_il", "confidence",
    "answers", "curve", "choices", "tasks", "class_names", "own_code", "versions", "machine",
)  # fmt: skip
_AS_IS = (
    "status",
    "diverged_at",
    "error",
    "started",
    "seconds",
    "created",
    "title",
    "flops",
    "memory_bytes",
)
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


def _make_trials(connection: sqlite3.Connection) -> None:
    # benchmark ... seed repeat what config says: they are what people filter and sort by.
    connection.execute(
        """
        CREATE TABLE trials (
            config_hash TEXT NOT NULL PRIMARY KEY,
            benchmark TEXT NOT NULL,
            method TEXT NOT NULL,
            mask REAL,
            buffer INTEGER NOT NULL,
            seed INTEGER NOT NULL,
            config TEXT NOT NULL,
            status TEXT NOT NULL CHECK (status IN ('finished', 'diverged', 'failed')),
            diverged_at INTEGER,
            error TEXT,
            class_il TEXT NOT NULL,
            task_il TEXT NOT NULL,
            confidence TEXT NOT NULL,
            versions TEXT NOT NULL,
            source_commit TEXT,
            machine TEXT NOT NULL,
            started TEXT NOT NULL,
            seconds REAL NOT NULL,
            created TEXT NOT NULL
        )
        """
    )
    connection.execute(
        "CREATE INDEX trials_in_order"
        " ON trials (benchmark, method, mask, buffer, seed, config_hash)"
    )


def _add_tasks_title_own_code_and_validation(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE trials ADD COLUMN title TEXT")
    connection.execute("ALTER TABLE trials ADD COLUMN own_code TEXT NOT NULL DEFAULT '{}'")
    for column in ("validation_class_il", "validation_task_il"):
        connection.execute(f"ALTER TABLE trials ADD COLUMN {column} TEXT NOT NULL DEFAULT '[]'")
    for column in ("tasks", "class_names"):
        connection.execute(f"ALTER TABLE trials ADD COLUMN {column} TEXT NOT NULL DEFAULT 'null'")
    rows = connection.execute("SELECT config_hash, config, class_il, confidence FROM trials")
    for config_hash, *values in rows.fetchall():
        try:
            config, class_il, confidence = map(json.loads, values)
            split = derived_split(TrialConfig.model_validate(config), class_il, confidence)
        except (ValueError, TypeError, RecursionError):  # a damaged row; whoever reads it is told
            continue
        if split is not None:
            connection.execute(
                "UPDATE trials SET tasks = ?, class_names = ? WHERE config_hash = ?",
                [json.dumps(split.tasks), json.dumps(split.class_names), config_hash],
            )


def _add_curve(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE trials ADD COLUMN curve TEXT NOT NULL DEFAULT 'null'")


def _add_choices(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE trials ADD COLUMN choices TEXT NOT NULL DEFAULT '[]'")


def _add_answers_and_costs(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE trials ADD COLUMN answers TEXT NOT NULL DEFAULT 'null'")
    connection.execute("ALTER TABLE trials ADD COLUMN flops REAL")
    connection.execute("ALTER TABLE trials ADD COLUMN memory_bytes INTEGER")


MIGRATIONS: tuple[Migration, ...] = (
    _make_trials,
    _add_tasks_title_own_code_and_validation,
    _add_curve,
    _add_choices,
    _add_answers_and_costs,
)
