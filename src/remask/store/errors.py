"""Errors about a results file, each with what to do."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from remask.errors import RemaskError


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


_BUSY = (
    "is locked: another process has been writing to it for too long. Nothing was written. "
    "Wait for that process to end, or end it, and try again."
)
_CANNOT_OPEN = (
    "cannot be opened. Fix the permissions of the file and its folder, or choose another file."
)
_DAMAGED = (
    "is damaged. It was left as it is. Move it away and restore a backup, or rescue what can be "
    "read with `sqlite3 FILE .recover`."
)
_ADVICE = {
    sqlite3.SQLITE_BUSY: _BUSY,
    sqlite3.SQLITE_LOCKED: _BUSY,
    sqlite3.SQLITE_FULL: (
        "cannot grow: the disk is full. The newest result was not written; earlier ones are safe. "
        "Free some space and run the same command again."
    ),
    sqlite3.SQLITE_READONLY: (
        "is read-only, or its folder is. Nothing was written. Fix the permissions, or copy it to "
        "another folder: SQLite needs files beside it even for reading."
    ),
    sqlite3.SQLITE_CANTOPEN: _CANNOT_OPEN,
    sqlite3.SQLITE_PERM: _CANNOT_OPEN,
    sqlite3.SQLITE_IOERR: (
        "cannot be read or written: the disk reports an error. The newest result was not written; "
        "earlier ones are safe. Check the disk, its free space and its quota, and run the same "
        "command again."
    ),
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: (
        "is not a results store: it is not an SQLite file. It was left as it is. Choose another "
        "file."
    ),
}


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn SQLite's errors about the file at `path` into StoreError."""
    try:
        yield
    except sqlite3.Error as error:
        advice = _ADVICE.get(error_code(error), "cannot be used.")
        raise StoreError(f"{path} {advice} (SQLite: {error})") from error
    except UnicodeDecodeError as error:  # in SQLite's description of the damage
        raise damaged(path, f"text that is not UTF-8: {error.reason}") from error


def damaged(path: Path, found: str) -> StoreError:
    """The error for a damaged file."""
    return StoreError(f"{path} {_DAMAGED} (Found: {found})")


def error_code(error: BaseException | None) -> int:
    """SQLite's primary result code; 0 if it is not SQLite's error."""
    extended: int = getattr(error, "sqlite_errorcode", 0)
    return extended & 0xFF
