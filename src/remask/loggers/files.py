"""Logs as plain files: CSV and JSON lines.

A file is read when it is opened, so that a stopped run continues where its log ends; a last line
that was cut short is removed. Several runs may log to one file: opening and appending hold a lock.
"""

import errno
import fcntl
import json
import math
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from remask.files import make_folder, refusal, write_all
from remask.loggers import Logger, LoggerError, TrialInfo

_EVENTS = ("begin", "step", "task", "end")


class _LinesLogger(Logger, ABC):
    """A text file to which lines are appended."""

    header: str
    """The first line of every log."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._has: dict[str, dict[str, int]] = {}
        self._waiting = ""
        make_folder(self._path.parent)
        try:
            self._file = self._path.open("a+b", buffering=0)
        except OSError as error:
            raise refusal("write", self._path, error) from error
        try:
            with self._locked():
                self._read_or_begin()
        except BaseException:
            self._file.close()
            raise

    def _read_or_begin(self) -> None:
        """Read a log, and remove a line that was cut short; begin a new file with its header."""
        if not stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        self._file.seek(0)
        content, header = self._file.readall(), self.header.encode()
        whole = content.rfind(b"\n") + 1
        try:
            if not (content if whole else header).startswith(header if whole else content):
                raise ValueError(f"its first line is not {self.header.rstrip()}")
            for line in content[len(header) : whole].decode().splitlines():
                name, event, step = self._event(line)
                if not isinstance(name, str) or event not in _EVENTS:
                    raise ValueError(f"it has a line of the event {event!r:.60}")
                self._has.setdefault(name, {})[event] = int(step)
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise LoggerError(
                f"{self._path} exists and is not a remask log ({error}). Nothing was written to "
                f"it. Name another file."
            ) from None
        if whole < len(content):
            self._file.truncate(whole)
        if not whole:
            write_all(self._file, header)

    @abstractmethod
    def _event(self, line: str) -> tuple[Any, Any, Any]:
        """Trial, event and step of a line, unchecked."""

    def reached(self, trial: TrialInfo) -> Mapping[str, int]:
        """See `Logger.reached`."""
        return self._has.get(trial.name, {})

    def flush(self) -> None:
        """Write the waiting lines in one piece."""
        if self._waiting:
            with self._locked():
                write_all(self._file, self._waiting.encode())
            self._waiting = ""

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other runs from opening or appending to this file; explain errors."""
        with suppress(OSError):  # not supported by the file system
            fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        except OSError as error:
            raise refusal("write", self._path, error) from error
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

    header = "trial,event,step,task,name,value\n"

    def _event(self, line: str) -> tuple[Any, Any, Any]:
        name, event, step, *_ = line.split(",")
        return name, event, step

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

    header = '{"event": "log", "version": 1}\n'

    def _event(self, line: str) -> tuple[Any, Any, Any]:
        entry = json.loads(line)
        return entry["trial"], entry["event"], entry["step"]

    def on_event(
        self, event: str, trial: TrialInfo, step: int, task: int, values: Mapping[str, float]
    ) -> None:
        """See `Logger.on_event`."""
        if trial.name not in self._has:
            self._has[trial.name] = {}
            self._write(trial, "begin", 0, settings=dict(trial.settings))
        # JSON has no NaN and no infinity.
        known = {name: value if math.isfinite(value) else None for name, value in values.items()}
        self._write(trial, event, step, task=None if event == "end" else task, values=known)

    def _write(self, trial: TrialInfo, event: str, step: int, **more: object) -> None:
        entry = {"trial": trial.name, "event": event, "step": step, **more}
        self._waiting += json.dumps(entry, allow_nan=False) + "\n"
