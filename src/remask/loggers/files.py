"""Logs as plain files: CSV and JSON lines, a line per value or per call.

Lines are only ever added. A file is read when it is opened, so that a run that was stopped goes on
where its log ends; a last line that was cut short is removed first.
"""

import csv
import io
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from remask.durable import AnyPath, DurabilityError, make_folder, refusal
from remask.loggers.logger import Logger, Reached, Source
from remask.loggers.places import LoggerError

_COLUMNS = ("trial", "event", "step", "task", "name", "value")


class _LinesLogger(Logger, ABC):
    """A text file to which lines are added."""

    def __init__(self, path: AnyPath) -> None:
        self._path = Path(path)
        self._had: dict[str, Reached] = {}
        self._waiting = ""
        try:
            make_folder(self._path.parent)
            self._file = self._path.open("a+b")
            self._file.seek(0)
            there = self._file.read()
            whole = there.rfind(b"\n") + 1
            self._file.truncate(whole)
        except OSError as error:
            if isinstance(error, DurabilityError):
                raise
            raise refusal("write", self._path, error) from error
        try:
            for name, event, step in self._calls(there[:whole].decode()):
                self._had[name] = self._had.get(name, Reached()).after(event, step)
        except (ValueError, KeyError, TypeError, csv.Error) as error:
            self._file.close()
            raise LoggerError(
                f"{self._path} exists and is not a remask log ({error}). Nothing was written to "
                f"it. Name another file."
            ) from None
        if not whole:
            self._waiting = self._first_line()

    @abstractmethod
    def _calls(self, text: str) -> Iterable[tuple[str, str, int]]:
        """Trial, event and step of everything in a file."""

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
        try:
            self._file.write(self._waiting.encode())
            self._file.flush()
        except OSError as error:
            raise refusal("write", self._path, error) from error
        self._waiting = ""

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
        return [(row[0], row[1], int(row[2])) for row in rows]

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
        return [(entry["trial"], entry["event"], int(entry["step"])) for entry in entries]

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
