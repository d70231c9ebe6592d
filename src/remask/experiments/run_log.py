"""The log of a run: passes the reports of its jobs to loggers in this process."""

import math
from collections.abc import Mapping, Sequence
from typing import Self

from remask.config import TrialConfig
from remask.engine.measurements import TaskPoint
from remask.experiments.events import Event, Finished, Logged
from remask.experiments.jobs import Run
from remask.experiments.options import RunOptions
from remask.experiments.train import net_path
from remask.loggers import Log, Logger, Setting, Source, open_logger
from remask.store.cells import scores


class RunLog:
    """Passes the events of a run to the loggers that its options name."""

    def __init__(self, run: Run, options: RunOptions) -> None:
        loggers: dict[str, Logger] = {}
        for number, place in enumerate(options.log, start=1):
            name = place if isinstance(place, str) else f"{type(place).__name__} ({number})"
            loggers[name] = open_logger(place) if isinstance(place, str) else place

        def say(text: str) -> None:
            options.console.print(f"note: {text}", highlight=False, soft_wrap=True)

        self._log = Log(loggers, say)
        self._sources = {config.hash: source_of(config) for config in run.configs}
        self._steps: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._log.close()

    def take(self, event: Event) -> None:
        """Log an event."""
        if isinstance(event, Logged):
            self._on_way(event)
        elif isinstance(event, Finished):
            for record in event.records:
                metrics = _known(scores(record))
                step = self._steps.get(record.config_hash, 0)
                self._log.end(self._sources[record.config_hash], step, metrics)
        else:
            return
        self._log.flush()

    def _on_way(self, event: Logged) -> None:
        names = [name if name == "loss" else f"loss/{name}" for name in event.names]
        for place, trial in enumerate(event.trials):
            source = self._sources[trial]
            for step, task, values in event.points:
                # Kept even if it is NaN: then the trial has diverged.
                own = dict(zip(names, values[place], strict=False))
                shown = {"loss": own.pop("loss"), **_known(own)}
                self._log.step(source, step, task + 1, shown)
                self._steps[trial] = step
            for point in event.tasks:
                self._log.task(source, point.step, point.task + 1, _accuracies(point, place))


def source_of(config: TrialConfig) -> Source:
    """A trial as loggers get it."""
    settings = {name: _plain(value) for name, value in config if name != "weights"}
    return Source(net_path("", config).name, settings | dict(config.weights))


def _plain(value: object) -> Setting:
    if isinstance(value, float) and math.isinf(value):
        return str(value)  # a mask
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _known(values: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if not math.isnan(value)}


def _accuracies(point: TaskPoint, trial: int) -> dict[str, float]:
    """The accuracy on each task so far, and their mean."""
    found: dict[str, float] = {}
    for setting, rows in (("class_il", point.class_il), ("task_il", point.task_il)):
        own: Sequence[float] = [value for value in rows[trial] if not math.isnan(value)]
        if own:
            found[f"{setting}/mean"] = sum(own) / len(own)
        for number, value in enumerate(rows[trial], start=1):
            if not math.isnan(value):
                found[f"{setting}/task {number}"] = value
    return found
