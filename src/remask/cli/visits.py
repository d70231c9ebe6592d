"""While a visit is learnt: how far it is, and how it is stopped."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from remask.console import PlainConsole

if TYPE_CHECKING:
    from remask.learner import Progress as Advanced

_SECONDS_BETWEEN_LINES = 10.0


@contextmanager
def visit_bar(name: str, console: PlainConsole) -> Iterator[Callable[["Advanced"], None]]:
    """Show how far a visit is: a bar in a terminal, otherwise a line every ten seconds."""
    if not console.is_terminal:
        yield _Lines(name, console).show
        return
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[detail]}", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
    shown: dict[str, TaskID] = {}
    with bar:
        reading = bar.add_task("reading the samples", total=None, detail="")

        def show(progress: "Advanced") -> None:
            if progress.phase not in shown:  # earlier steps and phases have another speed
                for task in (reading, *shown.values()):
                    bar.update(task, visible=False)
                shown[progress.phase] = bar.add_task(
                    name, total=progress.steps, completed=progress.step, detail=""
                )
            bar.update(shown[progress.phase], completed=progress.step, detail=_detail(progress))

        yield show


class _Lines:
    """Progress as plain lines, for a log."""

    def __init__(self, name: str, console: PlainConsole) -> None:
        self._name, self._console = name, console
        self._phase = ""
        self._began = self._last = time.monotonic()
        self._first = 0

    def show(self, progress: "Advanced") -> None:
        now = time.monotonic()
        if progress.phase != self._phase:
            self._phase, self._began, self._first = progress.phase, now, progress.step
        if now - self._last < _SECONDS_BETWEEN_LINES:
            return
        self._last = now
        done = progress.step - self._first
        left = ""
        if done:
            seconds = (now - self._began) / done * (progress.steps - progress.step)
            most = "at most" if progress.phase == "training" else "about"
            left = f", {most} {_duration(seconds)} left"
        text = f"{self._name}: {_detail(progress)}{left}"
        self._console.print(text, highlight=False, soft_wrap=True)


def _detail(progress: "Advanced") -> str:
    if progress.phase == "encoding":
        return f"encoding, {progress.step:,} of {progress.steps:,} samples"
    return f"training, epoch {progress.epoch}, step {progress.step:,} of at most {progress.steps:,}"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


@contextmanager
def stopping() -> Iterator[Callable[[], int | None]]:
    """Treat SIGTERM and the end of the terminal as Ctrl-C; gives which of them came, if any did."""
    came: list[int] = []

    def interrupt(number: int, _: FrameType | None) -> None:
        came.append(number)
        signal.raise_signal(signal.SIGINT)

    wanted = [getattr(signal, each) for each in ("SIGTERM", "SIGHUP") if hasattr(signal, each)]
    before = {
        number: signal.signal(number, interrupt)
        for number in wanted
        if signal.getsignal(number) != signal.SIG_IGN  # as under nohup
    }
    try:
        yield lambda: came[0] if came else None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
