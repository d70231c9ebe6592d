"""A results file as an SQLite database: created whole, checked before use.

A file that is not a sound store of this schema version is left as it is.
"""

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from remask.store.errors import NoResultsError, StoreError, damaged, error_code, explained
from remask.store.rows import TABLE

VERSION = 10
"""The schema version, in `PRAGMA user_version`."""
APPLICATION_ID = int.from_bytes(b"rmsk", "big")
"""Marks a file as a results store, in `PRAGMA application_id`."""
_IMMUTABLE = "ro&immutable=1"  # SQLite then needs no files beside it


def open_database(path: Path, *, create: bool, timeout: float) -> tuple[sqlite3.Connection, bool]:
    """Open the store at `path`; returns (connection, read_only).

    With `create`, a missing store is made and a store that can only be read is refused.
    """
    try:
        size = _size(path)
        if not size and not create:
            raise NoResultsError(f"there are no results at {path}: no such file, or an empty one.")
        if not size:
            _create(path)
    except OSError as error:
        raise StoreError(
            f"cannot use {path}: {error.strerror}. Fix the permissions or choose another file."
        ) from error
    try:
        # A connection that may write would roll back the journal of another program's database.
        _open(path, "ro", timeout).close()
        return _open(path, "rw", timeout), False
    except StoreError as error:
        read_only = error_code(error.__cause__) in (
            sqlite3.SQLITE_READONLY,
            sqlite3.SQLITE_CANTOPEN,
        )
        if create or not read_only:
            raise
        if _size(log := _log(path)):
            raise StoreError(
                f"{path} cannot be read where it is: {log.name} beside it holds its newest "
                f"results, and nothing can be written there. Copy both to another folder."
            ) from error
        return _open(path, _IMMUTABLE, timeout), True


def connect(path: Path, *, timeout: float, mode: str = "rw") -> sqlite3.Connection:
    """Connect to the file without checking it."""
    # isolation_level=None: transactions begin where the code begins them.
    return sqlite3.connect(
        f"{path.resolve().as_uri()}?mode={mode}", uri=True, timeout=timeout, isolation_level=None
    )


def connect_for_reading(path: Path, *, timeout: float, read_only: bool) -> sqlite3.Connection:
    """Open a second connection to a store that is open already."""
    return connect(path, timeout=timeout, mode=_IMMUTABLE if read_only else "ro")


def check_pages(connection: sqlite3.Connection, path: Path, check: str) -> None:
    """Raise StoreError if `integrity_check` or `quick_check` finds damage."""
    complaint = connection.execute(f"PRAGMA {check}(1)").fetchone()[0]
    if complaint != "ok":
        raise damaged(path, complaint)


@contextmanager
def writing(connection: sqlite3.Connection) -> Iterator[None]:
    """A transaction that holds the write lock from its start; all of it happens, or nothing."""
    # IMMEDIATE: a lock taken at the first write could fail after we have read.
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def pragma(connection: sqlite3.Connection, name: str) -> int:
    """Read a pragma that is a number."""
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _open(path: Path, mode: str, timeout: float) -> sqlite3.Connection:
    with explained(path):
        connection = connect(path, timeout=timeout, mode=mode)
        try:
            _check(connection, path)
            if mode != "rw":  # which is checked already
                check_pages(connection, path, "quick_check")
            # FULL: a trial that was reported as stored survives a power failure.
            connection.execute("PRAGMA synchronous = FULL")
        except BaseException:
            connection.close()
            raise
    return connection


def _check(connection: sqlite3.Connection, path: Path) -> None:
    """Raise StoreError unless the file is a sound store of this version."""
    if pragma(connection, "application_id") != APPLICATION_ID:
        raise StoreError(
            f"{path} is an SQLite database of another program, not a results store. "
            f"It was left as it is. Choose another file."
        )
    version = pragma(connection, "user_version")
    if version != VERSION:
        remedy = (
            "Upgrade remask to use it."
            if version > VERSION
            else "Choose another file, or export its trials with the remask that made it (`remask "
            "results export FILE.json`) and import them with this one."
        )
        raise StoreError(
            f"{path} has schema version {version}, and this remask supports version {VERSION}. "
            f"It was left as it is. {remedy}"
        )


def _create(path: Path) -> None:
    """Make an empty store; other processes may do so at the same time, and any may be killed."""
    path = path.resolve()
    if _size(log := _log(path)):  # SQLite would delete it
        raise damaged(path, f"an empty file or none, yet {log.name} beside it has contents")
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as folder:
        new = Path(folder) / "new.db"
        with explained(path), closing(sqlite3.connect(new)) as connection:
            # In this mode readers and the writer never wait for each other.
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(
                f"{TABLE}; PRAGMA application_id = {APPLICATION_ID}; "
                f"PRAGMA user_version = {VERSION};"
            )
        try:
            os.link(new, path)  # which never replaces a file
        except FileExistsError:
            if not _size(path):
                new.replace(path)
        except OSError:  # a file system without links
            new.replace(path)


def _log(path: Path) -> Path:
    return Path(f"{path}-wal")


def _size(path: Path) -> int:
    """The size of the file, 0 if there is none. Raises StoreError if it is not a regular file."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "a device or pipe"
        raise StoreError(f"{path} is {kind}, not a file. Name a file, such as results.db.")
    return status.st_size
