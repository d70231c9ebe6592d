"""What can go wrong with a results file, said so that a user knows what to do."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from remask.errors import RemaskError


class StoreError(RemaskError):
    """Results cannot be read or written; the message says where, why, and what to do."""


class NoResultsError(StoreError):
    """There is no store at the path, or one that was never completed."""


class StoreMovedError(StoreError):
    """The file at the store's path is no longer the one that was opened."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} was moved, deleted or replaced while it was in use. What was being written is "
            f"not there. Bring it back, or choose another file, and give the same command again."
        )


_ADVICE = {
    sqlite3.SQLITE_BUSY: (
        "is locked: another process has been writing to it for too long. Nothing was written. "
        "Wait for that process to end, or end it, and try again."
    ),
    sqlite3.SQLITE_FULL: (
        "cannot grow: the disk is full. The newest result was not written; earlier ones are safe. "
        "Free some space and give the same command again."
    ),
    sqlite3.SQLITE_READONLY: (
        "is read-only, or its folder is. Nothing was written. Fix the permissions, or copy it to "
        "another folder: SQLite keeps files beside it even while you only read."
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "cannot be opened. Fix the permissions of the file and its folder, or choose another file."
    ),
    sqlite3.SQLITE_IOERR: (
        "cannot be read or written: the disk reports an error. The newest result was not written; "
        "earlier ones are safe. Check the disk, its free space and its quota, and give the same "
        "command again."
    ),
}
_DAMAGED = (
    "is damaged. It was left as it is. Move it away and restore a backup, or rescue what can be "
    "read with `sqlite3 FILE .recover`."
)
_ADVICE[sqlite3.SQLITE_LOCKED] = _ADVICE[sqlite3.SQLITE_BUSY]
_ADVICE[sqlite3.SQLITE_PERM] = _ADVICE[sqlite3.SQLITE_CANTOPEN]
_ADVICE[sqlite3.SQLITE_CORRUPT] = _DAMAGED
_ADVICE[sqlite3.SQLITE_NOTADB] = _DAMAGED


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what SQLite raises about the file at `path` into StoreError."""
    try:
        yield
    except sqlite3.Error as error:
        advice = _ADVICE.get(error_code(error), "cannot be used.")
        raise StoreError(f"{path} {advice} (SQLite: {error})") from error


def damaged(path: Path, found: str) -> StoreError:
    """Make the error for a file whose contents cannot be right."""
    return StoreError(f"{path} {_DAMAGED} (Found: {found})")


def error_code(error: sqlite3.Error) -> int:
    """SQLite's primary result code; 0 for errors that Python's module raises by itself."""
    extended: int = getattr(error, "sqlite_errorcode", 0)
    return extended & 0xFF
