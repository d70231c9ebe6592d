"""The events of a run, shown as bars and passed to loggers."""

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Self

import numpy as np
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from remask.config import TrialConfig
from remask.console import PlainConsole, errors
from remask.data.sources import Progress as OnDownload
from remask.engine.measurements import TaskPoint
from remask.errors import counted, printable
from remask.experiments.jobs import Advanced, Event, Finished, Job, Logged, Note, PickedUp, Run
from remask.experiments.options import RunOptions
from remask.experiments.train import net_path
from remask.loggers import Log, Setting, TrialInfo
from remask.metrics import average_accuracy
from remask.own_code import own_title
from remask.record import TrialRecord
from remask.store.cells import cell_labels, scores

DETAIL = TextColumn("{task.fields[detail]}", markup=False)


def progress_bar(console: PlainConsole, *columns: ProgressColumn) -> Progress:
    """A bar on a terminal with these columns before the remaining time; elsewhere nothing."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        *columns,
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )


class Display:
    """Shows the events of a run: bars on a terminal, elsewhere a line for each finished cell.

    The trials of a cell differ in their seed only; they may be in several stacks, and a stack may
    have trials of several cells. Without `lines`, only notes are printed elsewhere.
    """

    def __init__(
        self, jobs: Sequence[Job], console: PlainConsole = errors, *, lines: bool = True
    ) -> None:
        self._console = console
        self._lines = lines or console.is_terminal
        self._cells = {job.name: Counter(config.cell for config in job.configs) for job in jobs}
        self._trials = sum(self._cells.values(), Counter[TrialConfig]())
        self._names = _names(list(self._trials))
        self._fractions: dict[str, float] = {}  # of each job that is begun or done
        self._results: dict[TrialConfig, list[TrialRecord]] = {}
        self._cells_done = self._picked_up = self._steps = 0
        self._steps_before: dict[str, int] = {}
        self._began = time.monotonic()
        percent = TextColumn("{task.percentage:>3.0f}%")
        self._bar = progress_bar(console, percent, DETAIL, TimeElapsedColumn())
        self._bars: dict[TrialConfig, TaskID] = {}

    def __enter__(self) -> Self:
        self._bar.start()
        total = self._trials.total()
        self._whole: TaskID = self._bar.add_task("starting", total=total, detail="")
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
        if self._picked_up:
            trials = counted(self._picked_up, "trial")
            text = f"note: {trials} taken from the store, computed earlier or by another process"
            self._console.print(text)

    def show(self, event: Event) -> None:
        """Show an event."""
        match event:
            case Advanced():
                self._move(event)
            case Finished() | PickedUp():
                self._picked_up += len(event.records) * isinstance(event, PickedUp)
                self._finish(event)
            case Note():
                self._console.print(f"note: {event.text}")

    def _move(self, event: Advanced) -> None:
        cells = self._cells[event.job]
        before = self._steps_before.get(event.job, event.steps_done)
        self._steps += (event.steps_done - before) * cells.total()
        self._steps_before[event.job] = event.steps_done
        self._fractions[event.job] = event.steps_done / event.total_steps
        accuracy = "" if np.isnan(event.accuracy) else f"accuracy {event.accuracy:.1f}"
        for cell in cells:
            if cell not in self._bars:
                total = self._trials[cell]
                self._bars[cell] = self._bar.add_task(self._names[cell], total=total, detail="")
            detail = f"task {event.task}/{event.tasks} {accuracy}"
            self._bar.update(self._bars[cell], completed=self._done(cell), detail=detail)
        self._update_whole()

    def _finish(self, event: Finished | PickedUp) -> None:
        self._fractions[event.job] = 1.0
        for record in event.records:
            self._results.setdefault(record.config.cell, []).append(record)
            if record.diverged_at is not None:
                self._console.print(
                    f"note: {record.system} with seed {record.seed} diverged at step "
                    f"{record.diverged_at:,}: its loss was not finite"
                )
        for cell in self._cells[event.job]:
            if len(self._results.get(cell, ())) == self._trials[cell]:
                self._finish_cell(cell)
        self._update_whole()

    def _finish_cell(self, cell: TrialConfig) -> None:
        self._cells_done += 1
        if cell in self._bars:
            self._bar.remove_task(self._bars.pop(cell))
        results = self._results.pop(cell)
        sound = [result.class_il for result in results if result.diverged_at is None]
        diverged = len(results) - len(sound)
        shown = f", {diverged} diverged" if diverged else ""
        accuracy = average_accuracy(np.array(sound)) if sound else np.array([np.nan])
        if not np.isnan(accuracy).any():
            what = "test accuracy" if cell.validation else "accuracy"
            shown += f", {what} {accuracy.mean():.2f}"
        if self._lines:
            ended = f"{self._names[cell]}: {counted(len(results), 'trial')}{shown}"
            cells = counted(len(self._trials), "cell")
            so_far = f"{self._cells_done} of {cells}, {self._rate()}"
            self._console.print(Text.assemble(ended, "  ", (so_far, "dim")))

    def _done(self, cell: TrialConfig) -> float:
        """How many trials of a cell are done, with parts of those that are running."""
        return sum(part * self._cells[name][cell] for name, part in self._fractions.items())

    def _update_whole(self) -> None:
        self._bar.update(
            self._whole,
            completed=sum(part * self._cells[n].total() for n, part in self._fractions.items()),
            description=f"{self._cells_done} of {len(self._trials)} cells",
            detail=self._rate(),
        )

    def _rate(self) -> str:
        """Steps of single trials per second, over all stacks, in this session."""
        return f"{self._steps / max(time.monotonic() - self._began, 1e-9):,.0f} trial steps/s"


def _names(cells: Sequence[TrialConfig]) -> dict[TrialConfig, str]:
    """Name each cell by its system, its buffer and what else distinguishes it."""
    labels = cell_labels(cells, {cell: own_title(cell.method) for cell in cells})
    several = len({cell.benchmark for cell in cells}) > 1
    names = {}
    for cell, label in zip(cells, labels, strict=True):
        buffer = f", buffer {cell.buffer}" if cell.buffer else ""
        names[cell] = printable(f"{cell.benchmark}, " * several + label + buffer)
    return names


@contextmanager
def download_bar(console: PlainConsole = errors) -> Iterator[OnDownload]:
    """A progress callback for downloads; the bar appears with the first byte."""
    tasks: dict[str, TaskID] = {}
    with progress_bar(console, DownloadColumn()) as bar:

        def show(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=total)
            bar.update(tasks[name], completed=done, total=total)

        yield show


class RunLog(Log):
    """Passes the events of a run to the loggers that its options name."""

    def __init__(self, run: Run, options: RunOptions) -> None:
        super().__init__(options.log, lambda text: options.console.print(f"note: {text}"))
        self._trials = {config.hash: logged_trial(config) for config in run.configs}
        self._steps: dict[str, int] = {}

    def take(self, event: Event) -> None:
        """Log an event."""
        if isinstance(event, Logged):
            self._on_way(event)
        elif isinstance(event, Finished):
            for record in event.records:
                metrics = _known(scores(record))
                step = self._steps.get(record.config_hash, 0)
                self.on_event("end", self._trials[record.config_hash], step, 0, metrics)
        else:
            return
        self.flush()

    def _on_way(self, event: Logged) -> None:
        names = [name if name == "loss" else f"loss/{name}" for name in event.names]
        for place, config_hash in enumerate(event.trials):
            trial = self._trials[config_hash]
            for step, task, values in event.points:
                # Kept even if it is NaN: then the trial has diverged.
                own = dict(zip(names, values[place], strict=False))
                shown = {"loss": own.pop("loss"), **_known(own)}
                self.on_event("step", trial, step, task + 1, shown)
                self._steps[config_hash] = step
            for point in event.tasks:
                reached = _accuracies(point, place)
                self.on_event("task", trial, point.step, point.task + 1, reached)


def logged_trial(config: TrialConfig) -> TrialInfo:
    """A trial as loggers get it."""
    settings = {name: _plain(value) for name, value in config if name != "weights"}
    return TrialInfo(net_path("", config).name, settings | dict(config.weights))


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
