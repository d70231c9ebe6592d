"""The results store: one SQLite file, a row for each trial that came to an end."""

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Self, TypeVar

from remask.config import TrialConfig
from remask.durable import AnyPath
from remask.record import TrialRecord
from remask.results.database import (
    check_version,
    open_database,
    open_for_reading,
    pragma,
    version_of,
    writing,
)
from remask.results.errors import StoreError, StoreMovedError, explained
from remask.results.filters import where
from remask.results.schema import COLUMNS, SUMMARY, from_row, summary_from_row, to_row
from remask.results.trial_summary import TrialSummary

_SELECT = f"SELECT {', '.join(COLUMNS)} FROM trials"
_SELECT_SUMMARY = f"SELECT {', '.join(SUMMARY)}, summary_digest FROM trials"
_INSERT = (
    f"INSERT OR REPLACE INTO trials ({', '.join(COLUMNS)})"
    f" VALUES ({', '.join(f':{name}' for name in COLUMNS)})"
)
# By contents, not by age: stores with the same trials list them alike.
_ORDER = "ORDER BY benchmark, method, mask, buffer, seed, config_hash"


class TrialOutline(NamedTuple):
    """What a row says beside the record in it; of a damaged one it may be anything."""

    config_hash: str
    benchmark: str
    method: str
    mask: float | None
    buffer: int
    seed: int
    status: str


class Store:
    """The trials in the file at `path`, which is made, with its folders, unless it is there.

    Any number of processes may read and write one file at the same time; each opens its own Store,
    and uses it in one thread. Anything wrong with the file raises StoreError.

    `create=False` refuses a file that is not there, and takes one that can only be read, as on a
    disc, for reading. `timeout` is how many seconds to wait while another process writes.
    """

    def __init__(self, path: AnyPath, *, create: bool = True, timeout: float = 30.0) -> None:
        self.path = Path(path)
        self._timeout = timeout
        self._connection, self._unchanging = open_database(
            self.path, create=create, timeout=timeout
        )
        self._connection.row_factory = sqlite3.Row
        self._connection.text_factory = _lenient_text
        self._file = _identity(self.path)

    def close(self) -> None:
        """Close the file; closing twice does no harm."""
        if _identity(self.path) != self._file:
            self._empty_log()
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, record: TrialRecord, *, replace: bool = False) -> bool:
        """Store a record unless its trial is there; returns whether it was written.

        When this returns True, the record is on the disk. A failed trial gives way to one that
        came to its end; anything else is replaced only by `replace=True`. Raises StoreMovedError
        if the file that was written is no longer the one at `path`.
        """
        return self.add_all([record], replace=replace) == 1

    def add_all(
        self,
        records: Iterable[TrialRecord],
        *,
        replace: bool | Callable[[TrialRecord, TrialRecord], bool] = False,
    ) -> int:
        """Store records as `add` does, all of them or, if this raises, none; returns how many.

        `replace` may be a function of the trial that is there and the new one.
        """
        written = 0
        with self._changing():
            for record in records:
                there = self._status(record.config_hash)
                retried = there == "failed" and record.status != "failed"
                if callable(replace) and there is not None and not retried:
                    mine = self.get(record.config_hash)
                    wanted = mine is not None and replace(mine, record)
                else:
                    wanted = bool(replace)
                if there is None or retried or wanted:
                    self._connection.execute(_INSERT, to_row(record))
                    written += 1
        return written

    def delete(self, config_hashes: Iterable[str]) -> int:
        """Remove the trials of these hashes, all or, if this raises, none; returns how many."""
        with self._changing():
            return sum(
                self._connection.execute(
                    "DELETE FROM trials WHERE config_hash = ?", [config_hash]
                ).rowcount
                for config_hash in config_hashes
            )

    def check_in_place(self) -> None:
        """Raise StoreMovedError if another file is at `path` than the one opened, or none."""
        if _identity(self.path) != self._file:
            raise StoreMovedError(self.path)

    def held(self) -> Iterator[TrialRecord]:
        """Read all trials of the file that was opened, even if it is no longer at `path`."""
        with explained(self.path):
            for row in self._connection.execute(f"{_SELECT} {_ORDER}"):
                yield from_row(row, self.path)

    def has(self, config_hash: str) -> bool:
        """Whether the trial is there, however it ended."""
        return self._status(config_hash) is not None

    def is_done(self, config_hash: str) -> bool:
        """Whether the trial is there and need not be run again: it did not fail."""
        return self._status(config_hash) in ("finished", "diverged")

    def get(self, config_hash: str) -> TrialRecord | None:
        """Read the trial of that hash; None if it is not there."""
        with explained(self.path):
            row = self._connection.execute(
                f"{_SELECT} WHERE config_hash = ?", [config_hash]
            ).fetchone()
        return None if row is None else from_row(row, self.path)

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
            some = ", ".join(row["config_hash"][: len(prefix) + 8] for row in rows[:3])
            more = ", ..." if len(rows) > 3 else ""
            raise StoreError(
                f"several trials in {self.path} have a hash that begins with {prefix!r}: "
                f"{some}{more}. Give more of it."
            )
        return from_row(rows[0], self.path)

    def records(self, filters: Mapping[str, object] | None = None) -> Iterator[TrialRecord]:
        """Read the trials that pass all `filters`, ordered by what was asked of them.

        Filters: benchmark, method, mask, buffer, seed, status, since (made at that time or later);
        a list of values lets any of them through. A method may be given by any name that remask
        prints or takes for it, `msderpp` and `MSDER++(-1)` among them. All trials come from one
        moment: what is added while you iterate does not show.
        """
        return (from_row(row, self.path) for row in self._rows(_SELECT, filters))

    def sound_records(
        self, damaged: list[StoreError], filters: Mapping[str, object] | None = None
    ) -> Iterator[TrialRecord]:
        """Read the trials that pass, as `records` does, except damaged ones.

        What is wrong with those is appended to `damaged` on the way.
        """
        return _sound(lambda row: from_row(row, self.path), self._rows(_SELECT, filters), damaged)

    def summaries(
        self, damaged: list[StoreError], filters: Mapping[str, object] | None = None
    ) -> Iterator[TrialSummary]:
        """Read what lists need of the trials that pass, much faster than their records."""
        cells: dict[bytes, TrialConfig] = {}
        rows = self._rows(_SELECT_SUMMARY, filters, as_bytes=True)
        return _sound(lambda row: summary_from_row(row, self.path, cells), rows, damaged)

    def outline(self, filters: Mapping[str, object] | None = None) -> list[TrialOutline]:
        """Identify the trials that pass without checking them, damaged ones included."""
        select = f"SELECT {', '.join(TrialOutline._fields)} FROM trials"
        return [TrialOutline(*row) for row in self._rows(select, filters)]

    def count(self, filters: Mapping[str, object] | None = None) -> int:
        """How many trials pass the filters of `records`."""
        condition, parameters = where(filters or {}, self._methods)
        with explained(self.path):
            found = self._connection.execute(
                f"SELECT count(*) FROM trials WHERE {condition}", parameters
            ).fetchone()
        return int(found[0])

    def changes(self) -> int:
        """Read a number that is another one after another process, or Store, has written."""
        with explained(self.path):
            return pragma(self._connection, "data_version")

    def _methods(self) -> list[tuple[str, str | None]]:
        """The methods there are, each with the title it gives itself, if it does."""
        with explained(self.path):
            rows = self._connection.execute("SELECT DISTINCT method, title FROM trials").fetchall()
        return [(str(method), None if title is None else str(title)) for method, title in rows]

    def _empty_log(self) -> None:
        """Write the log into the file that was opened, wherever that is by now.

        A log that stays where the file was would be taken for that of the file that is there next,
        and damage it. SQLite leaves it alone when it closes a file that was moved.
        """
        with suppress(sqlite3.Error):
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with explained(self.path), writing(self._connection):
            # Another remask may have changed the file while this one had it open.
            check_version(version_of(self._connection), self.path)
            yield
        self.check_in_place()

    def _status(self, config_hash: str) -> str | None:
        with explained(self.path):
            found = self._connection.execute(
                "SELECT status FROM trials WHERE config_hash = ?", [config_hash]
            ).fetchone()
        return None if found is None else str(found["status"])

    def _rows(
        self, select: str, filters: Mapping[str, object] | None, *, as_bytes: bool = False
    ) -> Iterator[sqlite3.Row]:
        """The rows of the trials that pass; an invalid filter is refused at once."""
        condition, parameters = where(filters or {}, self._methods)
        return self._read(f"{select} WHERE {condition} {_ORDER}", parameters, as_bytes)

    def _read(self, query: str, parameters: list[object], as_bytes: bool) -> Iterator[sqlite3.Row]:
        # A separate connection keeps the view of one moment while this store writes.
        with (
            explained(self.path),
            closing(
                open_for_reading(self.path, timeout=self._timeout, unchanging=self._unchanging)
            ) as connection,
        ):
            connection.row_factory = sqlite3.Row
            connection.text_factory = bytes if as_bytes else _lenient_text
            yield from connection.execute(query, parameters)


_Read = TypeVar("_Read")


def _sound(
    read: Callable[[sqlite3.Row], _Read], rows: Iterable[sqlite3.Row], damaged: list[StoreError]
) -> Iterator[_Read]:
    """What `read` returns for each row; rows that it refuses go to `damaged`."""
    for row in rows:
        try:
            found = read(row)
        except StoreError as error:
            damaged.append(error)
            continue
        yield found


def _identity(path: Path) -> tuple[int, int] | None:
    """Tell files apart by more than their names; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _lenient_text(raw: bytes) -> str:
    """Damaged text is let through to where rows are checked, which can say which row it is in."""
    return raw.decode(errors="replace")


def store_path(given: AnyPath | None = None) -> Path:
    """The store that is meant: the one given, else $REMASK_STORE, else one in the home folder."""
    path = Path(given) if given is not None else _default_store()
    try:
        str(path).encode()
    except UnicodeEncodeError:  # it would have to be written to files that are UTF-8
        raise StoreError(
            f"the store's path {path} is not valid UTF-8. Rename what is not, or choose another."
        ) from None
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
            "there is no home folder to keep results in: say --store FILE, or set REMASK_STORE"
        ) from None
