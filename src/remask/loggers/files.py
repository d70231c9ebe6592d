"""Logs as plain files: CSV and JSON lines.

A file is read when it is opened, so that a stopped run continues where its log ends; a last line
that was cut short is removed. Several runs may log to one file: reading and appending hold a lock.
"""

import fcntl
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import FileIO
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
        with self._locked() as file:
            self._read_or_begin(file)

    @contextmanager
    def _locked(self) -> Iterator[FileIO]:
        """Open the file while no other run reads or appends to it; explain errors."""
        try:
            with self._path.open("a+b", buffering=0) as file:
                with suppress(OSError):  # not supported by the file system
                    fcntl.flock(file, fcntl.LOCK_EX)
                yield file
        except OSError as error:
            raise refusal("write", self._path, error) from error

    def _read_or_begin(self, file: FileIO) -> None:
        """Read a log, and remove a line that was cut short; begin a new file with its header."""
        file.seek(0)
        content, header = file.readall(), self.header.encode()
        whole = content.rfind(b"\n") + 1
        try:
            if not (content if whole else header).startswith(header if whole else content):
                raise ValueError(f"its first line is not {self.header.rstrip()}")
            for line in content[len(header) : whole].decode().splitlines():
                name, event, step = self._event(line)
                if not isinstance(name, str) or event not in _EVENTS:
                    raise ValueError(f"it has a line of the event {event!r:.60}")
                self._has.setdefault(name, {})[event] = int(step)
        except (ValueError, LookupError, TypeError) as error:
            raise LoggerError(
                f"{self._path} exists and is not a remask log ({error}). Nothing was written to "
                f"it. Name another file."
            ) from None
        file.truncate(whole)
        if not whole:
            write_all(file, header)

    @abstractmethod
    def _event(self, line: str) -> tuple[Any, Any, Any]:
        """Trial, event and step of a line, unchecked."""

    def reached(self, trial: TrialInfo) -> Mapping[str, int]:
        """See `Logger.reached`."""
        return self._has.get(trial.name, {})

    def flush(self) -> None:
        """Write the waiting lines in one piece."""
        if self._waiting:
            with self._locked() as file:
                write_all(file, self._waiting.encode())
            self._waiting = ""

    def close(self) -> None:
        """Write the rest."""
        self.flush()


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
        self._waiting += "".join(f"{where},{name},{value:.9g}\n" for name, value in values.items())


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
