"""The live display: one bar for the whole run, with task, rate, time left and accuracy."""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from remask.benchmarks import Progress as OnDownload
from remask.cli.console import errors
from remask.launch import Event, Failed, Finished, Job, Note
from remask.launch import Progress as JobProgress
from remask.names import system_name


class Display:
    """Shows the events of a run. On a terminal it is a bar, elsewhere a line per finished stack."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.failures: list[str] = []
        self._jobs = {job.name: job for job in jobs}
        self._trials = sum(len(job.configs) for job in jobs)
        self._latest: dict[str, JobProgress] = {}
        self._trials_done = 0
        self._began = time.monotonic()
        self._begun_with: dict[str, int] = {}
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[detail]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=errors,
            disable=not errors.is_terminal,
            transient=True,
        )

    def __enter__(self) -> Self:
        self._bar.start()
        self._task: TaskID = self._bar.add_task("starting", total=len(self._jobs), detail="")
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, event: Event) -> None:
        """Take notice of an event."""
        if isinstance(event, JobProgress):
            self._latest[event.job] = event
            self._begun_with.setdefault(event.job, event.steps_done)
            self._update(event)
        elif isinstance(event, Finished):
            self._trials_done += len(event.results)
            for result in event.results:
                if result.diverged_at is not None:
                    system = system_name(result.config.method, result.config.mask)
                    errors.print(
                        f"note: {system} with seed {result.config.seed} diverged at step "
                        f"{result.diverged_at:,}: its loss was no longer a number",
                        highlight=False,
                    )
            if not errors.is_terminal:
                errors.print(
                    f"{self._trials_done} of {self._trials} trials done, {self._rate()}",
                    highlight=False,
                )
        elif isinstance(event, Note):
            errors.print(f"note: {event.text}", highlight=False, markup=False)
        elif isinstance(event, Failed):
            config = self._jobs[event.job].configs[0]
            self.failures.append(f"{config.method} on {config.benchmark}: {event.error}")

    def _update(self, event: JobProgress) -> None:
        done = sum(job.steps_done / job.total_steps for job in self._latest.values())
        accuracy = "" if math.isnan(event.accuracy) else f" · accuracy {event.accuracy:.1f}"
        config = self._jobs[event.job].configs[0]
        self._bar.update(
            self._task,
            completed=done,
            description=f"{config.method} {config.buffer or ''} task {event.task}/{event.tasks}",
            detail=f"{self._rate()}{accuracy}",
        )

    def _rate(self) -> str:
        """Steps of single trials a second, over all stacks, in this sitting."""
        steps = sum(
            (job.steps_done - self._begun_with[name]) * len(self._jobs[name].configs)
            for name, job in self._latest.items()
        )
        return f"{steps / max(time.monotonic() - self._began, 1e-9):,.0f} trial steps/s"


@contextmanager
def download_bar() -> Iterator[OnDownload]:
    """A progress callback for downloads; the bar appears with the first byte."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=errors,
        disable=not errors.is_terminal,
        transient=True,
    )
    tasks: dict[str, TaskID] = {}
    with bar:

        def show(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=total)
            bar.update(tasks[name], completed=done, total=total)

        yield show
