"""How to run trials, as far as it is for the user to say."""

import os
from dataclasses import dataclass
from pathlib import Path

from remask.asking import SettingsError
from remask.console import PlainConsole, errors, silence
from remask.durable import AnyPath
from remask.runs import Options

_SHORTEST_TIME = 0.1  # seconds between checkpoints


@dataclass(frozen=True, kw_only=True)
class How:
    """How to run trials; nothing here changes their results."""

    device: str = "cpu"
    """Where to compute, as torch names it."""
    workers: int | None = None
    """Processes; None: one per core."""
    threads: int = 1
    """Of each process."""
    stack: int | None = None
    """The most trials to train as one; None: what suits the net."""
    again: bool = False
    """Whether to run and replace also what the store already has."""
    data: AnyPath | None = None
    """A folder or archive that has the dataset already."""
    checkpoint_seconds: float = 60.0
    """Between checkpoints within a task."""
    save_nets: AnyPath | None = None
    """The folder to save the nets of finished trials in."""
    progress: bool | None = None
    """None: bars on a terminal, elsewhere only what must be said. True: elsewhere a line per cell
    as well. False: not a word."""

    def __post_init__(self) -> None:
        for name in ("workers", "threads", "stack"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise SettingsError(f"{name} = {value!r}: a whole number from 1 on is needed")
        if not self.checkpoint_seconds >= _SHORTEST_TIME:
            raise SettingsError(
                f"checkpoint_seconds = {self.checkpoint_seconds!r}: at least {_SHORTEST_TIME:g} "
                f"is needed"
            )

    @property
    def processes(self) -> int:
        """How many processes to run."""
        return self.workers or _cores()

    @property
    def options(self) -> Options:
        """What a worker process is told of it."""
        nets = None if self.save_nets is None else Path(self.save_nets)
        return Options(self.device, self.threads, self.checkpoint_seconds, nets)

    @property
    def console(self) -> PlainConsole:
        """Where to say what happens on the way."""
        return silence if self.progress is False else errors


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
