"""The results store: one SQLite file, a row for each trial that came to an end."""

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from remask.files import AnyPath
from remask.record import TrialRecord
from remask.store.cells import TrialSummary
from remask.store.database import (
    check_pages,
    connect_for_reading,
    open_database,
    pragma,
    writing,
)
from remask.store.errors import StoreError, StoreMovedError, explained
from remask.store.filters import where
from remask.store.rows import (
    COLUMNS,
    ORDER,
    SUMMARY,
    check_row,
    record_from,
    summary_from,
    to_row,
)

_SELECT = f"SELECT {', '.join(COLUMNS)} FROM trials"
_SELECT_SUMMARY = f"SELECT {', '.join(SUMMARY)} FROM trials"
_INSERT = (
    f"INSERT OR REPLACE INTO trials ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"
)
_ORDER = f"ORDER BY {', '.join(ORDER)}"
# Damaged text passes to where rows are checked, which names the row.
_lenient_text = partial(str, encoding="utf-8", errors="replace")
_Found = TypeVar("_Found")
_Row = tuple[Any, ...]
Filters = Mapping[str, object]


class Store:
    """The trials in the file at `path`, which is created, with its folders, if missing.

    Any number of processes may read and write one file at the same time; each opens its own Store,
    and uses it in one thread. Anything wrong with the file raises StoreError.

    `create=False` refuses a missing file, and opens one that can only be read. `timeout` is the
    number of seconds to wait while another process writes.
    """

    def __init__(self, path: AnyPath, *, create: bool = True, timeout: float = 30.0) -> None:
        self.path = Path(path)
        self._timeout = timeout
        self._connection, self._read_only = open_database(self.path, create=create, timeout=timeout)
        self._connection.text_factory = _lenient_text
        self._file = _identity(self.path)

    def close(self) -> None:
        """Close the file; closing twice does no harm."""
        if _identity(self.path) != self._file:
            # SQLite would leave the log, which would then damage the next file at this path.
            with suppress(sqlite3.Error):
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, record: TrialRecord, *, replace: bool = False) -> bool:
        """Store a record unless its trial is there; returns whether it was written.

        When this returns True, the record is on the disk. A failed trial is replaced by one that
        did not fail; anything else only with `replace=True`. Raises StoreMovedError if the file
        that was written is no longer the one at `path`.
        """
        return self.add_all([record], replace=replace) == 1

    def add_all(
        self,
        records: Iterable[TrialRecord],
        *,
        replace: bool | Callable[[TrialRecord, TrialRecord], bool] = False,
    ) -> int:
        """Store records as `add` does, all of them or, if this raises, none; returns the number.

        `replace` may be a function of the stored record and the new one.
        """
        written = 0
        with self._changing():
            for record in records:
                stored = self._status(record.config_hash)
                wanted = stored is None or (stored == "failed" and record.status != "failed")
                if not wanted and callable(replace):
                    mine = self.get(record.config_hash)
                    wanted = mine is not None and replace(mine, record)
                if wanted or replace is True:
                    self._connection.execute(_INSERT, to_row(record))
                    written += 1
        return written

    def delete(self, config_hashes: Iterable[str]) -> int:
        """Delete the trials of these hashes, all or, if this raises, none; returns the number."""
        delete = "DELETE FROM trials WHERE config_hash = ?"
        with self._changing():
            return sum(self._connection.execute(delete, [each]).rowcount for each in config_hashes)

    def check_in_place(self) -> None:
        """Raise StoreMovedError unless the file at `path` is the one that was opened."""
        if _identity(self.path) != self._file:
            raise StoreMovedError(self.path)

    def held(self) -> Iterator[TrialRecord]:
        """Read all trials of the file that was opened, even if it is no longer at `path`."""
        with explained(self.path):
            for row in self._connection.execute(f"{_SELECT} {_ORDER}"):
                yield record_from(row, self.path)

    def is_done(self, config_hash: str) -> bool:
        """Whether the trial is stored and did not fail."""
        return self._status(config_hash) in ("finished", "diverged")

    def get(self, config_hash: str) -> TrialRecord | None:
        """Read the trial of that hash; None if it is not stored."""
        row = self._row(f"{_SELECT} WHERE config_hash = ?", [config_hash])
        return None if row is None else record_from(row, self.path)

    def find(self, prefix: str) -> TrialRecord:
        """Read the one trial whose hash begins so; StoreError if there is none, or several."""
        with explained(self.path):
            rows = self._connection.execute(
                f"{_SELECT} WHERE substr(config_hash, 1, ?) = ? ORDER BY config_hash LIMIT 4",
                [len(prefix), prefix.lower()],
            ).fetchall()
        if not rows:
            raise StoreError(f"no trial in {self.path} has a hash that begins with {prefix!r}.")
        if len(rows) > 1:
            some = ", ".join(row[0][: len(prefix) + 8] for row in rows[:3])
            more = ", ..." if len(rows) > 3 else ""
            raise StoreError(
                f"several trials in {self.path} have a hash that begins with {prefix!r}: "
                f"{some}{more}. Give more of it."
            )
        return record_from(rows[0], self.path)

    def records(
        self, filters: Filters | None = None, *, damaged: list[StoreError] | None = None
    ) -> Iterator[TrialRecord]:
        """Read the trials that pass all `filters`, ordered by their settings.

        Filters: benchmark, method, mask, buffer, seed, status, hash, since (created at that time or
        later); a list of values selects any of them. A method may be given by any name that remask
        prints or accepts for it, such as `msderpp` and `MSDER++(-1)`. All trials are of one moment:
        what is added while you iterate does not show.

        A damaged trial raises StoreError, or with `damaged` is skipped and its error appended.
        """
        return self._read(_SELECT, filters, lambda row: record_from(row, self.path), damaged)

    def summaries(
        self, filters: Filters | None = None, *, damaged: list[StoreError] | None = None
    ) -> Iterator[TrialSummary]:
        """Like `records`, without what a list does not need: much faster."""
        return self._read(
            _SELECT_SUMMARY, filters, lambda row: summary_from(row, self.path), damaged
        )

    def unchecked(self, filters: Filters | None = None) -> Iterator[TrialSummary]:
        """Like `summaries`, including damaged trials as they are."""
        return self._read(_SELECT_SUMMARY, filters, lambda row: TrialSummary(*row[:-2]))

    def checked(self, damaged: list[StoreError] | None = None) -> Iterator[TrialRecord]:
        """Read all trials as `records` does, and check every column and every page."""

        def check(row: _Row) -> TrialRecord:
            record = record_from(row, self.path)
            check_row(row, record, self.path)
            return record

        yield from self._read(_SELECT, None, check, damaged)
        try:
            check_pages(self._connection, self.path, "integrity_check")
        except StoreError as error:
            if damaged is None:
                raise
            damaged.append(error)

    def count(self, filters: Filters | None = None) -> int:
        """The number of trials that pass the filters of `records`."""
        condition, parameters = where(filters or {}, self._methods)
        row = self._row(f"SELECT count(*) FROM trials WHERE {condition}", parameters)
        return 0 if row is None else int(row[0])

    def changes(self) -> int:
        """A number that changes when another process, or Store, writes."""
        with explained(self.path):
            return pragma(self._connection, "data_version")

    def _methods(self) -> list[tuple[str, str | None]]:
        """The stored methods, each with its own title if it has one."""
        with explained(self.path):
            return self._connection.execute("SELECT DISTINCT method, title FROM trials").fetchall()

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with explained(self.path), writing(self._connection):
            yield
        self.check_in_place()

    def _status(self, config_hash: str) -> str | None:
        row = self._row("SELECT status FROM trials WHERE config_hash = ?", [config_hash])
        return None if row is None else str(row[0])

    def _row(self, query: str, parameters: list[Any]) -> _Row | None:
        with explained(self.path):
            row: _Row | None = self._connection.execute(query, parameters).fetchone()
        return row

    def _read(
        self,
        select: str,
        filters: Filters | None,
        convert: Callable[[_Row], _Found],
        damaged: list[StoreError] | None = None,
    ) -> Iterator[_Found]:
        """Convert the rows of the trials that pass; an invalid filter raises at once."""
        condition, parameters = where(filters or {}, self._methods)
        query = f"{select} WHERE {condition} {_ORDER}"

        def found() -> Iterator[_Found]:
            # A separate connection keeps the view of one moment while this store writes.
            with (
                explained(self.path),
                closing(
                    connect_for_reading(self.path, timeout=self._timeout, read_only=self._read_only)
                ) as connection,
            ):
                connection.text_factory = _lenient_text
                for row in connection.execute(query, parameters):
                    try:
                        item = convert(row)
                    except StoreError as error:
                        if damaged is None:
                            raise
                        damaged.append(error)
                        continue
                    yield item

        return found()


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of the file; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def store_path(given: AnyPath | None = None) -> Path:
    """The path of the store: the one given, else $REMASK_STORE, else one in the home folder."""
    path = Path(given) if given is not None else _default_store()
    try:
        str(path).encode()
    except UnicodeEncodeError:  # it is written to files that are UTF-8
        raise StoreError(f"the store's path {path} is not valid UTF-8. Choose another.") from None
    return path


def _default_store() -> Path:
    if named := os.environ.get("REMASK_STORE"):
        return Path(named)
    if home := os.environ.get("XDG_DATA_HOME"):
        return Path(home) / "remask" / "results.db"
    try:
        return Path.home() / ".local" / "share" / "remask" / "results.db"
    except RuntimeError:
        raise StoreError(
            "there is no home folder to keep results in: use --store FILE, or set REMASK_STORE"
        ) from None
