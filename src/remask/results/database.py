"""A results file as an SQLite database, which is opened with care.

First it is inspected without a change to it, then connected to. A file that is not a sound store of
this schema version is left as it is.
"""

import shutil
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from remask.results.errors import NoResultsError, StoreError, damaged, error_code, explained
from remask.results.schema import VERSION, make_tables

APPLICATION_ID = int.from_bytes(b"rmsk", "big")
"""Marks a file as a results store; `PRAGMA application_id`."""
_MAGIC = b"SQLite format 3\x00"
# SQLite then needs no files beside it, and looks for no changes.
_UNCHANGING = "ro&immutable=1"


def open_database(path: Path, *, create: bool, timeout: float) -> tuple[sqlite3.Connection, bool]:
    """Open the store at `path`; returns (connection, read_only). `create` needs a writable one."""
    try:
        return _open_for_writing(path, create, timeout), False
    except StoreError as error:
        if create or not _is_read_only(error):
            raise
        return _open_unchanging(path), True


def open_for_reading(path: Path, *, timeout: float, unchanging: bool) -> sqlite3.Connection:
    """Open a second connection to a store that is open already."""
    return _connect(path, mode=_UNCHANGING if unchanging else "ro", timeout=timeout)


def copy_database(path: Path, target: Path, *, timeout: float) -> None:
    """Copy a store as it is at one moment, and leave it and its folder as they are."""
    if not _size(path):
        raise NoResultsError(f"there are no results at {path}: no such file, or an empty one.")
    log, before = _log(path), path.stat()
    with _rolled_back(path) as sound:
        if not _size(sound):
            raise NoResultsError(
                f"there are no results at {path}: its creation was interrupted. "
                f"The next run completes it."
            )
        _check_beginning(sound, path)
        # The log has contents only while another process writes, or after one was killed.
        mode = "ro" if _size(log) else _UNCHANGING
        with explained(path), closing(_connect(sound, mode=mode, timeout=timeout)) as source:
            _check_contents(source, sound, path)
            with closing(sqlite3.connect(target)) as copy:
                source.backup(copy)
    after = path.stat()
    changed = (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size)
    if mode == _UNCHANGING and (changed or _size(log)):
        raise StoreError(f"another process has just written to {path}. Try again.")


def check_pages(connection: sqlite3.Connection, path: Path) -> None:
    """Raise StoreError unless the tables and indexes of a store agree; reads all of it."""
    complaint = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if complaint != "ok":
        raise damaged(path, complaint)


def _open_for_writing(path: Path, create: bool, timeout: float) -> sqlite3.Connection:
    """Open the store at `path`, and make it if it is new. What is not a store is left alone."""
    _inspect(path, create=create, timeout=timeout)
    with explained(path):
        connection = _connect(path, mode="rwc" if create else "rw", timeout=timeout)
        try:
            _use_write_ahead_log(connection, timeout)
            # FULL: a trial that was reported as stored survives a power failure.
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            _make(connection)
        except BaseException:
            connection.close()
            raise
    return connection


def _open_unchanging(path: Path) -> sqlite3.Connection:
    """Open a store where nothing can be written, such as on a disc, for reading alone."""
    for beside, holds in ((_log(path), "its newest results"), (_journal(path), "a part of it")):
        if _size(beside):
            raise StoreError(
                f"{path} cannot be read where it is: {beside.name} beside it holds {holds}, and "
                f"nothing can be written there. Copy both to another folder and read them there."
            )
    with explained(path):
        connection = _connect(path, mode=_UNCHANGING, timeout=0.0)
        try:
            _check_contents(connection, path, path)
            if not version_of(connection):
                raise NoResultsError(
                    f"there are no results at {path}: its creation was interrupted."
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
    # isolation_level=None: transactions begin where the code begins them.
    return sqlite3.connect(
        f"{path.resolve().as_uri()}?mode={mode}", uri=True, timeout=timeout, isolation_level=None
    )


def _inspect(path: Path, *, create: bool, timeout: float) -> None:
    """Raise StoreError unless there is a sound store at `path`, or nothing; writes no store."""
    try:
        size = _size(path)
        if size is None and not create:
            raise NoResultsError(f"there are no results at {path}: no such file.")
        if not size:
            # SQLite would take a log beside an empty file for rubbish, and delete it.
            log = _log(path)
            if _size(log):
                raise damaged(path, f"an empty file or none, yet {log.name} beside it has contents")
            path.parent.mkdir(parents=True, exist_ok=True)
            return
    except OSError as error:
        raise _unusable(path, error) from error
    with _rolled_back(path) as sound:
        if not _size(sound):  # its creation was interrupted
            return
        _check_beginning(sound, path)
        with explained(path), closing(_connect(sound, mode="ro", timeout=timeout)) as connection:
            _check_contents(connection, sound, path)


@contextmanager
def _rolled_back(path: Path) -> Iterator[Path]:
    """The file or, if a transaction in it was interrupted, a copy from before that transaction.

    A process that is killed while it creates a store leaves a journal. Only a connection that may
    write can roll it back, and the file may belong to another program, so a copy is inspected.
    """
    journal = _journal(path)
    if not _size(journal):
        yield path
        return
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "copy.db"
        try:
            shutil.copyfile(path, copy)
            shutil.copyfile(journal, _journal(copy))
        except FileNotFoundError:  # another process has just completed its transaction
            yield path
            return
        except OSError as error:
            raise _unusable(path, error) from error
        with closing(sqlite3.connect(copy)) as connection, suppress(sqlite3.DatabaseError):
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        yield copy


def _log(path: Path) -> Path:
    return Path(f"{path}-wal")


def _journal(path: Path) -> Path:
    return Path(f"{path}-journal")


def _check_beginning(file: Path, path: Path) -> None:
    """Refuse a file that is not SQLite's; errors name `path`."""
    try:
        with file.open("rb") as stream:
            beginning = stream.read(len(_MAGIC))
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


def _check_contents(connection: sqlite3.Connection, file: Path, path: Path) -> None:
    """Raise StoreError unless `file` holds a sound store of this version; errors name `path`."""
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
    _check_length(connection, file, path)
    if version:
        check_version(version, path)


def _check_length(connection: sqlite3.Connection, file: Path, path: Path) -> None:
    """Refuse a file whose end is missing, which SQLite would read as zeros."""
    connection.execute("BEGIN")
    expected = pragma(connection, "page_count") * pragma(connection, "page_size")
    # Pages at the end may still be in the log. Asked within the transaction: while it lasts, no
    # other process can empty the log.
    if not _size(_log(file)) and (found := _size(file) or 0) < expected:
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


def _make(connection: sqlite3.Connection) -> None:
    """Make the tables of a new store, all or none."""
    if version_of(connection):
        return
    with writing(connection):
        if version_of(connection):  # another process has made them while this one waited
            return
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        make_tables(connection)
        connection.execute(f"PRAGMA user_version = {VERSION}")


def check_version(version: int, path: Path) -> None:
    """Refuse a file of another schema version."""
    if version > VERSION:
        raise StoreError(
            f"{path} has schema version {version}, and this remask supports version {VERSION}. "
            f"It was left as it is. Upgrade remask to use it."
        )
    if version < VERSION:
        raise StoreError(
            f"{path} has schema version {version}: an earlier remask made it, and this one "
            f"supports version {VERSION}. It was left as it is. Choose another file, or export its "
            f"trials with that remask (`remask results export FILE.json`) and import them with "
            f"this one (`remask results import FILE.json`)."
        )
