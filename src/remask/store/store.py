"""The results store: one SQLite file, a row for each trial that came to an end.

A row holds a `TrialSummary`, a digest of `details`, a digest of both, and `details`: the rest of
the record as JSON. An index holds all but the details, so a list reads the index alone.
"""

import hashlib
import json
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Self, TypeVar, get_args, get_type_hints

from pydantic import ValidationError

from remask.config import MaskValue
from remask.errors import describe_errors
from remask.files import AnyPath
from remask.record import Status, TrialRecord
from remask.store.cells import SCORES, TrialSummary, cell_config, summary_of
from remask.store.database import (
    IMMUTABLE,
    StoreError,
    StoreMovedError,
    check_pages,
    connect,
    explained,
    identity,
    open_database,
)
from remask.store.filters import where

SUMMARY = (*TrialSummary._fields, "details_digest", "digest")
COLUMNS = (*SUMMARY, "details")
ORDER = ("benchmark", "method", "mask", "buffer", "seed", "config_hash")
_TYPES: dict[object, str] = {
    **{str: "TEXT NOT NULL", int: "INTEGER NOT NULL", float: "REAL NOT NULL"},
    **{bytes: "BLOB NOT NULL", str | None: "TEXT", MaskValue: "REAL"},
}
_FIELDS = ", ".join(f"{name} {_TYPES[kind]}" for name, kind in get_type_hints(TrialSummary).items())
_TABLE = f"""
CREATE TABLE trials (
    {_FIELDS}, details_digest BLOB NOT NULL, digest BLOB NOT NULL, details TEXT NOT NULL,
    PRIMARY KEY (config_hash), CHECK (status IN {get_args(Status)})
);
CREATE INDEX trials_in_order ON trials ({", ".join(dict.fromkeys((*ORDER, *SUMMARY)))})
"""
_IN_SUMMARY = {"config", "status", "title", "created", "error", "seconds"}
_SELECT = f"SELECT {', '.join(COLUMNS)} FROM trials"
_SELECT_SUMMARY = f"SELECT {', '.join(SUMMARY)} FROM trials"
_INSERT = (
    f"INSERT OR REPLACE INTO trials ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"
)
# By contents, not by age: stores with the same trials have the same order.
_ORDERED = f"ORDER BY {', '.join(ORDER)}"
_Found = TypeVar("_Found")
_Row = tuple[Any, ...]
_Filters = Mapping[str, object]


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
        self._connection, self._read_only = open_database(
            self.path, _TABLE, create=create, timeout=timeout
        )
        self._file = identity(self.path)

    def close(self) -> None:
        """Close the file; closing twice does no harm."""
        if identity(self.path) != self._file:
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
                    self._rows(_INSERT, to_row(record))
                    written += 1
        return written

    def delete(self, config_hashes: Iterable[str]) -> int:
        """Delete the trials of these hashes, all or, if this raises, none; returns the number."""
        delete = "DELETE FROM trials WHERE config_hash = ?"
        with self._changing():
            return sum(self._connection.execute(delete, [each]).rowcount for each in config_hashes)

    def check_in_place(self) -> None:
        """Raise StoreMovedError unless the file at `path` is the one that was opened."""
        if identity(self.path) != self._file:
            raise StoreMovedError(self.path)

    def held(self) -> Iterator[TrialRecord]:
        """Read all trials of the file that was opened, even if it is no longer at `path`."""
        with explained(self.path):
            for row in self._connection.execute(f"{_SELECT} {_ORDERED}"):
                yield _record_from(row, self.path)

    def is_done(self, config_hash: str) -> bool:
        """Whether the trial is stored and did not fail."""
        return self._status(config_hash) in ("finished", "diverged")

    def get(self, config_hash: str) -> TrialRecord | None:
        """Read the trial of that hash; None if it is not stored."""
        rows = self._rows(f"{_SELECT} WHERE config_hash = ?", [config_hash])
        return _record_from(rows[0], self.path) if rows else None

    def find(self, prefix: str) -> TrialRecord:
        """Read the one trial whose hash begins so; StoreError if there is none, or several."""
        found = list(islice(self.records({"hash": prefix}), 2))
        if len(found) == 1:
            return found[0]
        what = "several trials" if found else "no trial"
        advice = "Give more of it." if found else "`remask results list --trials` prints hashes."
        raise StoreError(f"{what} in {self.path} with a hash that begins with {prefix!r}. {advice}")

    def records(
        self, filters: _Filters | None = None, *, damaged: list[StoreError] | None = None
    ) -> Iterator[TrialRecord]:
        """Read the trials that pass all `filters`, ordered by their settings.

        Filters: benchmark, method, mask, buffer, seed, status, hash, since (created at that time or
        later); a list of values selects any of them. A method may be given by any name that remask
        prints or accepts for it, such as `msderpp` and `MSDER++(-1)`. All trials are of one moment:
        what is added while you iterate does not show.

        A damaged trial raises StoreError, or with `damaged` is skipped and its error appended.
        """
        return self._read(_SELECT, filters, partial(_record_from, path=self.path), damaged)

    def summaries(
        self, filters: _Filters | None = None, *, damaged: list[StoreError] | None = None
    ) -> Iterator[TrialSummary]:
        """Like `records`, without what a list does not need: much faster."""
        convert = partial(_summary_from, path=self.path)
        return self._read(_SELECT_SUMMARY, filters, convert, damaged)

    def unchecked(self, filters: _Filters | None = None) -> Iterator[TrialSummary]:
        """Like `summaries`, including damaged trials as they are."""
        return self._read(_SELECT_SUMMARY, filters, lambda row: TrialSummary(*row[:-2]))

    def checked(self, damaged: list[StoreError] | None = None) -> Iterator[TrialRecord]:
        """Read all trials as `records` does, and check every column and every page."""
        yield from self._read(_SELECT, None, partial(_checked_record, path=self.path), damaged)
        try:
            check_pages(self._connection, self.path, "integrity_check")
        except StoreError as error:
            _collect(error, damaged)

    def count(self, filters: _Filters | None = None) -> int:
        """The number of trials that pass the filters of `records`."""
        condition, parameters = where(filters or {}, self._rows)
        [(count,)] = self._rows(f"SELECT count(*) FROM trials WHERE {condition}", parameters)
        return int(count)

    def changes(self) -> int:
        """A number that changes when another process, or Store, writes."""
        return int(self._rows("PRAGMA data_version")[0][0])

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with explained(self.path), self._connection:
            # IMMEDIATE: a lock taken at the first write could fail after we have read.
            self._connection.execute("BEGIN IMMEDIATE")
            yield
        self.check_in_place()

    def _status(self, config_hash: str) -> str | None:
        rows = self._rows("SELECT status FROM trials WHERE config_hash = ?", [config_hash])
        return rows[0][0] if rows else None

    def _rows(self, query: str, parameters: Sequence[object] = ()) -> list[_Row]:
        with explained(self.path):
            return self._connection.execute(query, parameters).fetchall()

    def _read(
        self,
        select: str,
        filters: _Filters | None,
        convert: Callable[[_Row], _Found],
        damaged: list[StoreError] | None = None,
    ) -> Iterator[_Found]:
        """Convert the rows of the trials that pass; an invalid filter raises at once."""
        condition, parameters = where(filters or {}, self._rows)
        mode = IMMUTABLE if self._read_only else "ro"

        def found() -> Iterator[_Found]:
            # A separate connection keeps the view of one moment while this store writes.
            with (
                explained(self.path),
                closing(connect(self.path, self._timeout, mode)) as connection,
            ):
                for row in connection.execute(f"{select} WHERE {condition} {_ORDERED}", parameters):
                    try:
                        converted = convert(row)
                    except StoreError as error:
                        _collect(error, damaged)
                    else:
                        yield converted

        return found()


def _collect(error: StoreError, damaged: list[StoreError] | None) -> None:
    """Append the error to `damaged`; without the list, raise it."""
    if damaged is None:
        raise error
    damaged.append(error)


def to_row(record: TrialRecord) -> _Row:
    """The values of COLUMNS."""
    return sealed(summary_of(record), record.model_dump_json(exclude=_IN_SUMMARY))


def sealed(summary: TrialSummary, details: str) -> _Row:
    """A row of these contents with its digests."""
    # + 0.0: SQLite stores -0.0 as 0.0.
    plain = (value + 0.0 if isinstance(value, float) else value for value in summary)
    values = (*plain, _sha(details.encode()))
    return (*values, _digest(values), details)


def _summary_from(row: _Row, path: Path) -> TrialSummary:
    """The summary in the values of SUMMARY; raises StoreError if they are damaged."""
    try:
        if row[-1] != _digest(row[:-1]):
            raise ValueError("its contents do not match its digest")
        *plain, cell, packed, _, _ = row
        summary = TrialSummary(*(*plain, sys.intern(cell), packed))
        if len(summary.packed) != 8 * len(SCORES):
            raise ValueError(f"it has not {len(SCORES)} metrics")
        cell_config(summary.cell)
    except (ValueError, TypeError, RecursionError) as error:
        raise _damaged(row[0], path, str(error)) from error
    return summary


def _record_from(row: _Row, path: Path) -> TrialRecord:
    """The record in the values of COLUMNS; raises StoreError if the row is damaged."""
    *columns, details = row
    summary = _summary_from(tuple(columns), path)
    try:
        if columns[-2] != _sha(str(details).encode(errors="replace")):
            raise ValueError("its details do not match their digest")
        shared = {name: getattr(summary, name) for name in _IN_SUMMARY - {"config"}}
        config = cell_config(summary.cell).model_copy(update={"seed": summary.seed})
        return TrialRecord.model_validate({**json.loads(details), **shared, "config": config})
    except ValidationError as error:
        if error.errors()[0]["type"] == "extra_forbidden":
            raise StoreError(
                f"the trial {summary.config_hash} in {path} was stored by a newer remask "
                f"({describe_errors(error)}). Upgrade remask to read it."
            ) from error
        raise _damaged(summary.config_hash, path, describe_errors(error)) from error
    except (ValueError, TypeError, RecursionError) as error:
        raise _damaged(summary.config_hash, path, str(error)) from error


def _checked_record(row: _Row, path: Path) -> TrialRecord:
    """The record in a row; raises StoreError unless the row is that of the record."""
    record = _record_from(row, path)
    for name, found, expected in zip(COLUMNS, row, to_row(record), strict=True):
        if found != expected:
            reason = f"{name} is {found!r:.80}, its record implies {expected!r:.80}"
            raise _damaged(row[0], path, reason)
    return record


def _digest(values: _Row) -> bytes:
    *plain, packed, details_digest = values
    return _sha(ascii(plain).encode() + packed + details_digest)


def _sha(data: bytes) -> bytes:
    """The first half of the SHA-256."""
    return hashlib.sha256(data).digest()[:16]


def _damaged(config_hash: object, path: Path, reason: str) -> StoreError:
    return StoreError(
        f"the trial {config_hash} in {path} is damaged: {reason}. To delete it: "
        f"`remask results delete --hash {config_hash}`, then run the trial again."
    )
