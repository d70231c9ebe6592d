"""A results file as an SQLite database: opened with care, and migrated.

First it is looked at without touching anything, then connected to. What is not a sound store of a
known version is left as it is.
"""

import itertools
import os
import secrets
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from remask.results.errors import StoreError, damaged, error_code, explained

Migration = Callable[[sqlite3.Connection], None]
"""Brings a file from one version to the next."""

APPLICATION_ID = int.from_bytes(b"rmsk", "big")
"""Marks a file as a results store; `PRAGMA application_id`."""
_MAGIC = b"SQLite format 3\x00"
# SQLite then needs no files beside it, and looks for no changes.
_UNCHANGING = "ro&immutable=1"


def open_database(
    path: Path, *, create: bool, timeout: float, migrations: Sequence[Migration]
) -> tuple[sqlite3.Connection, bool]:
    """Open the store at `path`; also gives whether it can only be read, which `create` forbids."""
    try:
        return _open_for_writing(path, create, timeout, migrations), False
    except StoreError as error:
        if create or not _is_read_only(error):
            raise
        return _open_unchanging(path, migrations), True


def open_for_reading(path: Path, *, timeout: float, unchanging: bool) -> sqlite3.Connection:
    """Open a second connection to a store that is open already."""
    return _connect(path, mode=_UNCHANGING if unchanging else "ro", timeout=timeout)


def copy_database(path: Path, target: Path, *, timeout: float, known: int) -> None:
    """Copy a store as it is at one moment, and leave it and its folder as they are."""
    if not _size(path):
        raise StoreError(f"there are no results at {path}: no such file, or an empty one.")
    _check_beginning(path)
    log, before = Path(f"{path}-wal"), path.stat()
    # Only where another process writes, or one was killed, is there a log that must be read, too.
    mode = "ro" if _size(log) else _UNCHANGING
    with explained(path), closing(_connect(path, mode=mode, timeout=timeout)) as source:
        _check_contents(source, path, known=known)
        with closing(sqlite3.connect(target)) as copy:
            source.backup(copy)
    after = path.stat()
    changed = (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size)
    if mode == _UNCHANGING and (changed or _size(log)):
        raise StoreError(f"another process has just written to {path}. Try again.")


def _open_for_writing(
    path: Path, create: bool, timeout: float, migrations: Sequence[Migration]
) -> sqlite3.Connection:
    """Open the store at `path`, made or migrated as need be. What is no store is left alone."""
    _inspect(path, create=create, timeout=timeout, known=len(migrations))
    with explained(path):
        connection = _connect(path, mode="rwc" if create else "rw", timeout=timeout)
        try:
            _use_write_ahead_log(connection, timeout)
            # FULL: a trial that was reported as stored survives a power failure.
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            _migrate(connection, path, migrations)
        except BaseException:
            connection.close()
            raise
    return connection


def _open_unchanging(path: Path, migrations: Sequence[Migration]) -> sqlite3.Connection:
    """Open a store where nothing can be written, such as on a disc, for reading alone."""
    log = Path(f"{path}-wal")
    if _size(log):
        raise StoreError(
            f"{path} cannot be read where it is: {log.name} beside it holds its newest results, "
            f"and nothing can be written there. Copy both to another folder and read them there."
        )
    with explained(path):
        connection = _connect(path, mode=_UNCHANGING, timeout=0.0)
        try:
            _check_contents(connection, path, known=len(migrations))
            if version_of(connection) < len(migrations):
                raise StoreError(
                    f"{path} was made by an earlier remask and must be brought up to date, but "
                    f"nothing can be written there. Copy it to another folder and read it there."
                )
        except BaseException:
            connection.close()
            raise
    return connection


def _is_read_only(error: StoreError) -> bool:
    """Whether a store could not be opened because nothing can be written where it is."""
    cause = error.__cause__
    return isinstance(cause, sqlite3.Error) and error_code(cause) in (
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
    )


def _connect(path: Path, *, mode: str, timeout: float) -> sqlite3.Connection:
    # isolation_level=None: transactions begin where we say so.
    return sqlite3.connect(
        f"{path.resolve().as_uri()}?mode={mode}", uri=True, timeout=timeout, isolation_level=None
    )


def _inspect(path: Path, *, create: bool, timeout: float, known: int) -> None:
    """Raise StoreError unless there is a sound store at `path`, or nothing; writes no store."""
    try:
        size = _size(path)
        if size is None and not create:
            raise StoreError(f"there are no results at {path}: no such file.")
        if not size:
            # SQLite would take a log beside an empty file for rubbish, and delete it.
            log = Path(f"{path}-wal")
            if _size(log):
                raise damaged(path, f"an empty file or none, yet {log.name} beside it has contents")
            path.parent.mkdir(parents=True, exist_ok=True)
            return
    except OSError as error:
        raise _unusable(path, error) from error
    _check_beginning(path)
    with explained(path), closing(_connect(path, mode="ro", timeout=timeout)) as connection:
        _check_contents(connection, path, known=known)


def _check_beginning(path: Path) -> None:
    """Refuse a file that is not SQLite's."""
    try:
        with path.open("rb") as file:
            beginning = file.read(len(_MAGIC))
    except OSError as error:
        raise _unusable(path, error) from error
    if beginning != _MAGIC:
        raise StoreError(
            f"{path} is not a results store: it is not an SQLite file, but begins with "
            f"{beginning!r}. It was left as it is. Choose another file."
        )


def _unusable(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"cannot use {path}: {error.strerror}. Fix the permissions or choose another file."
    )


def _check_contents(connection: sqlite3.Connection, path: Path, *, known: int) -> None:
    """Raise StoreError unless what the file holds is a sound store, of a version that is known."""
    complaint = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if complaint != "ok":
        raise damaged(path, complaint)
    version = version_of(connection)
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    # A process that died while it made the store leaves version 0 and no table.
    if (version or tables) and pragma(connection, "application_id") != APPLICATION_ID:
        raise StoreError(
            f"{path} is an SQLite database of another program, not a results store. "
            f"It was left as it is. Choose another file."
        )
    _check_length(connection, path)
    check_version(version, known, path)


def _check_length(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file whose end is missing, which SQLite would read as zeros."""
    connection.execute("BEGIN")
    expected = pragma(connection, "page_count") * pragma(connection, "page_size")
    # Pages at the end may still be in the log. Asked within the transaction: while it lasts, no
    # other process can empty the log behind our back.
    if not _size(Path(f"{path}-wal")) and (found := _size(path) or 0) < expected:
        raise damaged(path, f"{found} bytes where {expected} should be")
    connection.execute("COMMIT")


def _size(path: Path) -> int | None:
    """Measure the file; None if there is none. Raises StoreError if it is no ordinary file."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "a device or pipe"
        raise StoreError(f"{path} is {kind}, not a file. Name a file, such as results.db.")
    return status.st_size


def _use_write_ahead_log(connection: sqlite3.Connection, timeout: float) -> None:
    """Switch to the journal mode in which readers and the writer never wait for each other."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            # When several processes make one store at once, SQLite does not wait for this lock.
            if error_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


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


def _migrate(connection: sqlite3.Connection, path: Path, migrations: Sequence[Migration]) -> None:
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
