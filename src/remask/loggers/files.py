"""Logs as plain files: CSV and JSON lines.

Lines are only appended. A file is read when it is opened, so that a stopped run continues where its
log ends. A last line that was cut short is removed, once the rest has proved to be a log. Several
runs may log to one file: opening and appending hold a lock on it.
"""

import csv
import errno
import fcntl
import io
import json
import math
import os
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from remask.files import DurabilityError, make_folder, refusal, write_all
from remask.loggers import Logger, LoggerError, Reached, TrialInfo

_COLUMNS = "trial,event,step,task,name,value"
_EVENTS = ("begin", "step", "task", "end")
_FIRST_ENTRY = re.compile(rb'\{"trial": "[^"]*", "event": "begin", "step": 0, "settings": ')


class _LinesLogger(Logger, ABC):
    """A text file to which lines are appended."""

    header = ""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._has: dict[str, Reached] = {}
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
        except DurabilityError:
            raise
        except OSError as error:
            raise refusal("write", self._path, error) from error

    def _read_or_begin(self) -> None:
        """Read a log, and remove a line that was cut short; begin a new file with its header."""
        if not stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        self._file.seek(0)
        content = self._file.readall()
        whole = content.rfind(b"\n") + 1
        try:
            for name, event, step in self._events(content[:whole].decode()):
                if not isinstance(name, str) or event not in _EVENTS:
                    raise ValueError(f"it has a line of the event {event!r:.60}")
                self._has[name] = self._has.get(name, Reached()).after(event, int(step))
            if not self._may_be_cut(content[whole:], whole == 0):
                raise ValueError("its last line is not one of a log")
        except (ValueError, LookupError, TypeError, RecursionError, csv.Error) as error:
            raise LoggerError(
                f"{self._path} exists and is not a remask log ({error}). Nothing was written to "
                f"it. Name another file."
            ) from None
        if whole < len(content):
            self._file.truncate(whole)
        if not whole:
            write_all(self._file, self.header.encode())

    @abstractmethod
    def _events(self, text: str) -> Iterator[tuple[Any, Any, Any]]:
        """Trial, event and step of every line, unchecked."""

    @abstractmethod
    def _may_be_cut(self, end: bytes, first: bool) -> bool:
        """Whether `end` may be a line of a log that was cut short; `first`: it is the first."""

    def reached(self, trial: TrialInfo) -> Reached:
        """See `Logger.reached`."""
        return self._has.get(trial.name, Reached())

    def flush(self) -> None:
        """Write the waiting lines in one piece."""
        if not self._waiting:
            return
        try:
            with self._locked():
                write_all(self._file, self._waiting.encode())
        except OSError as error:
            raise refusal("write", self._path, error) from error
        self._waiting = ""

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other runs from opening or appending to this file."""
        with suppress(OSError):  # not supported by the file system
            fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            with suppress(OSError):
                fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Write the rest, and close the file."""
        try:
            self.flush()
        finally:
            self._file.close()


class CsvLogger(_LinesLogger):
    """A line per value: trial, event (step, task, end), step, task, name, value."""

    header = f"{_COLUMNS}\n"

    def _events(self, text: str) -> Iterator[tuple[Any, Any, Any]]:
        rows = csv.reader(io.StringIO(text))
        if ",".join(next(rows, [_COLUMNS])) != _COLUMNS:
            raise ValueError(f"its first line is not {_COLUMNS}")
        return ((row[0], row[1], row[2]) for row in rows)

    def _may_be_cut(self, end: bytes, first: bool) -> bool:
        return not first or self.header.encode().startswith(end)

    def on_event(
        self, event: str, trial: TrialInfo, step: int, task: int, values: Mapping[str, float]
    ) -> None:
        """See `Logger.on_event`."""
        # No name contains a comma or a quote, so these many lines need no csv.writer.
        where = f"{trial.name},{event},{step},{'' if event == 'end' else task}"
        lines = (f"{where},{name},{value:.9g}\n" for name, value in values.items())
        self._waiting += "".join(lines)


class JsonLinesLogger(_LinesLogger):
    """An object per event. The settings of a trial are in its first one."""

    def _events(self, text: str) -> Iterator[tuple[Any, Any, Any]]:
        entries: Iterator[Any] = map(json.loads, text.splitlines())
        return ((entry["trial"], entry["event"], entry["step"]) for entry in entries)

    def _may_be_cut(self, end: bytes, first: bool) -> bool:
        if first and end:  # other JSON begins alike, so require more of the first line
            return _FIRST_ENTRY.match(end) is not None
        start = b'{"trial": "'
        return end.startswith(start) or start.startswith(end)

    def on_event(
        self, event: str, trial: TrialInfo, step: int, task: int, values: Mapping[str, float]
    ) -> None:
        """See `Logger.on_event`."""
        if trial.name not in self._has:
            self._has[trial.name] = Reached()
            self._write(trial, "begin", 0, settings=dict(trial.settings))
        # JSON has no NaN and no infinity.
        known = {name: value if math.isfinite(value) else None for name, value in values.items()}
        self._write(trial, event, step, task=None if event == "end" else task, values=known)

    def _write(self, trial: TrialInfo, event: str, step: int, **more: object) -> None:
        entry = {"trial": trial.name, "event": event, "step": step, **more}
        self._waiting += json.dumps(entry, allow_nan=False) + "\n"
