"""What a logger is: three calls, each of them optional."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

Setting = str | int | float | bool | None
"""What a setting of a trial can be; no number is infinite."""


@dataclass(frozen=True)
class Source:
    """The trial that values come from."""

    name: str
    """Unique to the trial, and usable as a file name."""
    settings: Mapping[str, Setting] = field(default_factory=dict, hash=False)


class Reached(NamedTuple):
    """What a logger already has of a source."""

    step: int = 0
    """The step of the latest losses."""
    task_step: int = 0
    """The step of the latest accuracies after a task."""
    ended: bool = False

    def after(self, event: str, step: int) -> "Reached":
        """The same once an event has been handed over: `step`, `task` or `end`, at a step."""
        if event == "step":
            return self._replace(step=max(self.step, step))
        if event == "task":
            return self._replace(task_step=max(self.task_step, step))
        return self._replace(ended=True) if event == "end" else self


class Logger:
    """Receives what trials show while they learn, everything once.

    Steps are counted through the whole stream, and tasks from 1. Values have names; unknown ones
    are left out. It is used in one thread of the process that was asked to log.
    """

    def on_step(self, source: Source, step: int, task: int, values: Mapping[str, float]) -> None:
        """Losses, as means over the steps since the last call: `loss`, `loss/replay`, ..."""

    def on_task(self, source: Source, step: int, task: int, values: Mapping[str, float]) -> None:
        """Accuracies in percent after a task: `class_il/mean`, `class_il/task 1`, ..."""

    def on_end(self, source: Source, step: int, values: Mapping[str, float]) -> None:
        """The metrics of a trial that has ended: `class_il_A_T`, ..."""

    def reached(self, source: Source) -> Reached:
        """What it has of a source from earlier runs, which is not handed over again."""
        return Reached()

    def flush(self) -> None:
        """Called after several calls, when the next one may take a while."""

    def close(self) -> None:
        """Called once at the end."""
