"""While a visit is learnt: how far it is, and how it is stopped."""

import signal
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


@contextmanager
def visit_bar(name: str, console: PlainConsole) -> Iterator[Callable[["Advanced"], None]]:
    """A progress bar with an estimate of the time that is left, if there is a terminal."""
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[detail]}", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )
    shown: list[TaskID] = []
    with bar:
        reading = bar.add_task("reading the images", total=None, detail="")

        def show(progress: "Advanced") -> None:
            if not shown:  # steps of an earlier call say nothing about the speed of this one
                bar.remove_task(reading)
                shown.append(
                    bar.add_task(name, total=progress.steps, completed=progress.step, detail="")
                )
            detail = f"epoch {progress.epoch}, step {progress.step:,} of at most {progress.steps:,}"
            bar.update(shown[0], completed=progress.step, detail=detail)

        yield show


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
