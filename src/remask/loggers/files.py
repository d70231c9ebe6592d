"""Logs as plain files: CSV and JSON lines, a line per value or per call.

Lines are only appended. A file is read when it is opened, so that a run that was stopped continues
where its log ends. A last line that was cut short is removed, once the rest has proved to be a log.
Several runs may log to one file: opening and appending hold a lock on it.
"""

import contextlib
import csv
import errno
import io
import json
import math
import os
import re
import stat
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from remask.durable import AnyPath, DurabilityError, make_folder, refusal
from remask.loggers.logger import Logger, Reached, Source
from remask.loggers.places import LoggerError

try:
    import fcntl
except ImportError:  # Windows, where runs that share a log are not kept apart
    fcntl = None  # type: ignore[assignment]

_COLUMNS = ("trial", "event", "step", "task", "name", "value")
_EVENTS = ("begin", "step", "task", "end")
_FIRST_ENTRY = re.compile(rb'\{"trial": "[^"]*", "event": "begin", "step": 0, "settings": ')
_NOT_SUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
_LONGEST_WAIT = 30.0  # seconds; the lock is held for milliseconds


class _LinesLogger(Logger, ABC):
    """A text file to which lines are appended."""

    def __init__(self, path: AnyPath) -> None:
        self._path = Path(path)
        self._had: dict[str, Reached] = {}
        self._waiting = ""
        try:
            make_folder(self._path.parent)
            self._file = self._path.open("a+b", buffering=0)
            try:
                with self._locked():
                    self._read_or_begin()
            except BaseException:
                self._file.close()
                raise
        except OSError as error:
            if isinstance(error, DurabilityError):
                raise
            raise refusal("write", self._path, error) from error

    def _read_or_begin(self) -> None:
        """Register what a log has, and cut its end to a whole line; give a new file its header."""
        if not stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        self._file.seek(0)
        there = self._file.readall()
        whole = there.rfind(b"\n") + 1
        try:
            for name, event, step in self._calls(there[:whole].decode()):
                self._had[name] = self._had.get(name, Reached()).after(event, step)
            if not self._may_be_cut(there[whole:], whole == 0):
                raise ValueError("its last line is not one of a log")
        except (ValueError, LookupError, TypeError, RecursionError, csv.Error) as error:
            raise LoggerError(
                f"{self._path} exists and is not a remask log ({error}). Nothing was written to "
                f"it. Name another file."
            ) from None
        if whole < len(there):
            self._file.truncate(whole)
        if not whole:
            self._append(self._first_line())

    @abstractmethod
    def _calls(self, text: str) -> Iterable[tuple[str, str, int]]:
        """Trial, event and step of everything in a file."""

    @abstractmethod
    def _may_be_cut(self, end: bytes, first: bool) -> bool:
        """Whether `end` may be a line of a log that was cut short; `first`: it is the first."""

    @abstractmethod
    def _first_line(self) -> str:
        """What a new file begins with."""

    @abstractmethod
    def _lines(
        self, source: Source, event: str, step: int, task: int | None, values: Mapping[str, float]
    ) -> str:
        """A call in lines."""

    def on_step(self, source: Source, step: int, task: int, values: Mapping[str, float]) -> None:
        """See `Logger.on_step`."""
        self._waiting += self._lines(source, "step", step, task, values)

    def on_task(self, source: Source, step: int, task: int, values: Mapping[str, float]) -> None:
        """See `Logger.on_task`."""
        self._waiting += self._lines(source, "task", step, task, values)

    def on_end(self, source: Source, step: int, values: Mapping[str, float]) -> None:
        """See `Logger.on_end`."""
        self._waiting += self._lines(source, "end", step, None, values)

    def reached(self, source: Source) -> Reached:
        """See `Logger.reached`."""
        return self._had.get(source.name, Reached())

    def flush(self) -> None:
        """Write what is waiting in one piece."""
        if not self._waiting:
            return
        try:
            with self._locked():
                self._append(self._waiting)
        except OSError as error:
            raise refusal("write", self._path, error) from error
        self._waiting = ""

    def _append(self, text: str) -> None:
        rest = memoryview(text.encode())
        while rest:  # the system may take a part only
            rest = rest[self._file.write(rest) :]

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other runs from opening or appending to this file."""
        deadline = time.monotonic() + _LONGEST_WAIT
        while fcntl is not None:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if error.errno in _NOT_SUPPORTED:  # by the file system
                    break
                if not isinstance(error, BlockingIOError):
                    raise
                if time.monotonic() > deadline:
                    raise OSError(errno.EBUSY, "another process has locked it") from None
                time.sleep(0.01)
        try:
            yield
        finally:
            if fcntl is not None:
                with contextlib.suppress(OSError):
                    fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Write the rest, and close the file."""
        try:
            self.flush()
        finally:
            self._file.close()


class CsvLogger(_LinesLogger):
    """A line per value: trial, event (step, task, end), step, task, name, value."""

    def _first_line(self) -> str:
        return ",".join(_COLUMNS) + "\n"

    def _calls(self, text: str) -> Iterable[tuple[str, str, int]]:
        rows = csv.reader(io.StringIO(text))
        if (head := next(rows, None)) is not None and tuple(head) != _COLUMNS:
            raise ValueError(f"its first line is not {','.join(_COLUMNS)}")
        return [_checked(row[0], row[1], row[2]) for row in rows]

    def _may_be_cut(self, end: bytes, first: bool) -> bool:
        return not first or self._first_line().encode().startswith(end)

    def _lines(
        self, source: Source, event: str, step: int, task: int | None, values: Mapping[str, float]
    ) -> str:
        # No name contains a comma or a quote, so these many lines need no csv.writer.
        where = f"{source.name},{event},{step},{'' if task is None else task}"
        return "".join(f"{where},{name},{value:.9g}\n" for name, value in values.items())


class JsonLinesLogger(_LinesLogger):
    """An object per call. The settings of a trial are in its first one."""

    def _first_line(self) -> str:
        return ""

    def _calls(self, text: str) -> Iterable[tuple[str, str, int]]:
        entries: list[Any] = [json.loads(line) for line in text.splitlines()]
        return [_checked(entry["trial"], entry["event"], entry["step"]) for entry in entries]

    def _may_be_cut(self, end: bytes, first: bool) -> bool:
        if first and end:  # other files begin like this, too: take only what no other begins with
            return _FIRST_ENTRY.match(end) is not None
        start = b'{"trial": "'
        return end.startswith(start) or start.startswith(end)

    def _lines(
        self, source: Source, event: str, step: int, task: int | None, values: Mapping[str, float]
    ) -> str:
        entries: list[dict[str, Any]] = []
        if source.name not in self._had:
            self._had[source.name] = Reached()
            begin = {"trial": source.name, "event": "begin", "step": 0}
            entries.append({**begin, "settings": dict(source.settings)})
        entry = {"trial": source.name, "event": event, "step": step, "task": task}
        # JSON has no NaN and no infinity.
        known = {name: value if math.isfinite(value) else None for name, value in values.items()}
        entries.append({**entry, "values": known})
        return "".join(json.dumps(e, allow_nan=False) + "\n" for e in entries)


def _checked(trial: object, event: object, step: Any) -> tuple[str, str, int]:
    """Trial, event and step of a line; raises ValueError if they cannot be those of a log."""
    if not isinstance(trial, str) or event not in _EVENTS:
        raise ValueError(f"it has a line of the event {event!r:.60}")
    return trial, str(event), int(step)
