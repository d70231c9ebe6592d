"""A results file as an SQLite database: created whole, checked before use, errors with remedies.

A file that is not a sound store of this schema version is left as it is.
"""

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from remask.errors import RemaskError
from remask.files import AnyPath, remove_stale_temporaries, temporary_beside

VERSION = 11
"""The schema version, in `PRAGMA user_version`."""
APPLICATION_ID = int.from_bytes(b"rmsk", "big")
"""Marks a file as a results store, in `PRAGMA application_id`."""
IMMUTABLE = "ro&immutable=1"
"""Mode in which SQLite needs no files beside the database."""

_BUSY = "is locked: another process has been writing to it for too long. Try again when it ends."
_CANNOT_OPEN = "cannot be opened. Fix the permissions of it and its folder, or choose another file."
_DAMAGED = (
    "is damaged. It was left as it is. Move it away and restore a backup, or rescue what can be "
    "read with `sqlite3 FILE .recover`."
)
_SAFE = "The newest result was not written; earlier ones are safe. Run the same command again."
_ADVICE = {
    sqlite3.SQLITE_BUSY: _BUSY,
    sqlite3.SQLITE_LOCKED: _BUSY,
    sqlite3.SQLITE_FULL: f"cannot grow: the disk is full. Free some space. {_SAFE}",
    sqlite3.SQLITE_READONLY: (
        "is read-only, or its folder is. Nothing was written. Fix the permissions, or copy it to "
        "another folder: SQLite needs files beside it even for reading."
    ),
    sqlite3.SQLITE_CANTOPEN: _CANNOT_OPEN,
    sqlite3.SQLITE_PERM: _CANNOT_OPEN,
    sqlite3.SQLITE_IOERR: f"cannot be read or written. Check the disk and its free space. {_SAFE}",
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: (
        "is not a results store: it is not an SQLite file. It was left as it is. Choose another."
    ),
}


class StoreError(RemaskError):
    """Results cannot be read or written; the message has the file, the reason and a remedy."""


class NoResultsError(StoreError):
    """There is no store at the path."""


class StoreMovedError(StoreError):
    """The file at the store's path is no longer the one that was opened."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} was moved, deleted or replaced while it was in use. The newest results are "
            f"not there. Bring it back, or choose another file, and run the same command again."
        )


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn SQLite's errors about the file at `path` into StoreError."""
    try:
        yield
    except sqlite3.Error as error:
        advice = _ADVICE.get(_code(error), "cannot be used.")
        raise StoreError(f"{path} {advice} (SQLite: {error})") from error
    except UnicodeDecodeError as error:  # in SQLite's description of the damage
        raise _damaged(path, f"text that is not UTF-8: {error.reason}") from error


def identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of the file; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def store_path(given: AnyPath | None = None) -> Path:
    """The path of the store: the one given, else $REMASK_STORE, else one in the home folder."""
    named = os.environ.get("REMASK_STORE") or None if given is None else given
    data = Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share")
    try:
        path = data.expanduser() / "remask" / "results.db" if named is None else Path(named)
        str(path).encode()
    except RuntimeError:
        raise StoreError(
            "there is no home folder to keep results in: use --store FILE, or set REMASK_STORE"
        ) from None
    except UnicodeEncodeError:  # it is written to files that are UTF-8
        raise StoreError(f"the store's path {path} is not valid UTF-8. Choose another.") from None
    return path


def open_database(
    path: Path, schema: str, *, create: bool, timeout: float
) -> tuple[sqlite3.Connection, bool]:
    """Open the store at `path`; returns (connection, read_only).

    With `create`, a missing store is made with `schema`, and a read-only one is refused.
    """
    try:
        if create:
            remove_stale_temporaries(path.resolve().parent)
        if not _size(path):
            if not create:
                raise NoResultsError(
                    f"there are no results at {path}: no such file, or an empty one. Run trials "
                    f"first, or name another file with --store."
                )
            _create(path, schema)
    except OSError as error:
        raise StoreError(
            f"cannot use {path}: {error.strerror}. Fix the permissions, or choose another file "
            f"(--store)."
        ) from error
    try:
        # A connection that may write would roll back the journal of another program's database.
        _open(path, "ro", timeout).close()
        return _open(path, "rw", timeout), False
    except StoreError as error:
        read_only = _code(error.__cause__) in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)
        if create or not read_only:
            raise
        if _size(log := _log(path)):
            raise StoreError(
                f"{path} cannot be read where it is: {log.name} beside it holds its newest "
                f"results, and nothing can be written there. Copy both to another folder."
            ) from error
        return _open(path, IMMUTABLE, timeout), True


def connect(path: Path, timeout: float, mode: str) -> sqlite3.Connection:
    """Connect to the file without checking it."""
    # isolation_level=None: transactions begin where the code begins them.
    connection = sqlite3.connect(
        f"{path.resolve().as_uri()}?mode={mode}", uri=True, timeout=timeout, isolation_level=None
    )
    # Damaged text passes to where rows are checked, which names the row. A partial, which is
    # called for each text of each row, is faster than a function.
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")
    return connection


def check_pages(connection: sqlite3.Connection, path: Path, check: str) -> None:
    """Raise StoreError if `integrity_check` or `quick_check` finds damage."""
    complaint = connection.execute(f"PRAGMA {check}(1)").fetchone()[0]
    if complaint != "ok":
        raise _damaged(path, complaint)


def _open(path: Path, mode: str, timeout: float) -> sqlite3.Connection:
    with explained(path):
        connection = connect(path, timeout, mode)
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
    """Raise StoreError unless the file is a store of this version."""
    application, version = (
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("application_id", "user_version")
    )
    if application != APPLICATION_ID:
        raise StoreError(
            f"{path} is an SQLite database of another program, not a results store. "
            f"It was left as it is. Choose another file."
        )
    if version != VERSION:
        remedy = "Upgrade remask to use it." if version > VERSION else "Choose another file."
        raise StoreError(
            f"{path} has schema version {version}, and this remask supports version {VERSION}. "
            f"It was left as it is. {remedy}"
        )


def _create(path: Path, schema: str) -> None:
    """Make an empty store; other processes may do so at the same time, and any may be killed."""
    path = path.resolve()
    if _size(log := _log(path)):  # SQLite would delete it
        raise _damaged(path, f"an empty file or none, yet {log.name} beside it has contents")
    path.parent.mkdir(parents=True, exist_ok=True)
    with temporary_beside(path) as folder:
        folder.mkdir()
        new = folder / "new.db"
        with explained(path), closing(sqlite3.connect(new)) as connection:
            # In WAL mode, readers and the writer never wait for each other.
            connection.executescript(
                f"PRAGMA journal_mode = WAL; {schema}; PRAGMA application_id = {APPLICATION_ID}; "
                f"PRAGMA user_version = {VERSION};"
            )
        try:
            os.link(new, path)  # which never replaces a file
        except OSError:  # the path is taken, or the file system has no links
            if not _size(path):
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


def _damaged(path: Path, found: str) -> StoreError:
    return StoreError(f"{path} {_DAMAGED} (Found: {found})")


def _code(error: BaseException | None) -> int:
    """SQLite's primary result code; 0 if it is not SQLite's error."""
    extended: int = getattr(error, "sqlite_errorcode", 0)
    return extended & 0xFF
