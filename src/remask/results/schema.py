"""The table, its versions, and the way from an older version to this one.

The version of a file is its `PRAGMA user_version`. `MIGRATIONS[n]` brings a file from version n to
n + 1; the first one makes the table. To change the schema, append a migration; never edit one that
was released.
"""

import itertools
import json
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from remask.config import TrialConfig
from remask.results.completing import derived_split
from remask.results.errors import StoreError, explained

Migration = Callable[[sqlite3.Connection], None]

APPLICATION_ID = int.from_bytes(b"rmsk", "big")
"""Marks a file as a results store; `PRAGMA application_id`."""


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


MIGRATIONS: tuple[Migration, ...] = (_make_trials, _add_tasks_title_own_code_and_validation)


def version_of(connection: sqlite3.Connection) -> int:
    """Read the file's schema version; 0 for a file that has just been made."""
    return pragma(connection, "user_version")


def pragma(connection: sqlite3.Connection, name: str) -> int:
    """Read a pragma that is a number."""
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


@contextmanager
def writing(connection: sqlite3.Connection) -> Iterator[None]:
    """One transaction that holds the write lock from its start; all of it happens, or nothing."""
    # IMMEDIATE: a lock taken only at the first write could fail after we have read, and what we
    # have read would then be out of date.
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def migrate(connection: sqlite3.Connection, path: Path, migrations: Sequence[Migration]) -> None:
    """Bring the file to the latest version, after backing it up; all the way, or not at all."""
    if version_of(connection) >= len(migrations):
        return
    with writing(connection):
        # Asked again: another process may have migrated while we waited for the lock.
        version = version_of(connection)
        if version >= len(migrations):
            return
        if version == 0:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        else:
            _back_up(path, version)
        for migration in migrations[version:]:
            migration(connection)
        connection.execute(f"PRAGMA user_version = {len(migrations)}")


def check_version(version: int, known: int, path: Path) -> None:
    """Refuse a file that a later remask has written."""
    if version > known:
        raise StoreError(
            f"{path} has schema version {version}, and this remask knows versions up to {known}. "
            f"It was left as it is. Upgrade remask to use it."
        )


def _back_up(path: Path, version: int) -> None:
    """Copy the file to the first free one of `<name>.v<version>.bak`, `.bak2`, `.bak3`, ...

    The caller holds the write lock, so the copy is what is about to be migrated.
    """
    first = f"{path}.v{version}.bak"
    names = itertools.chain([first], (f"{first}{number}" for number in itertools.count(2)))
    target = next(candidate for candidate in map(Path, names) if not candidate.exists())
    temporary = Path(f"{target}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        with (
            explained(target),
            closing(sqlite3.connect(path.resolve().as_uri() + "?mode=ro", uri=True)) as source,
            closing(sqlite3.connect(temporary)) as copy,
        ):
            source.backup(copy)
        temporary.replace(target)
    except OSError as error:
        raise StoreError(
            f"cannot write the backup {target}: {error.strerror}. {path} was not migrated."
        ) from error
    finally:
        with suppress(OSError):  # gone already when all went well
            temporary.unlink()
