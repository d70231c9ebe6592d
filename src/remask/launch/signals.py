"""Stopping politely: the first Ctrl-C or SIGTERM asks, the second Ctrl-C insists."""

import os
import signal
from types import FrameType
from typing import Self


class StopRequest:
    """While entered, a first SIGINT or SIGTERM is noted instead of obeyed.

    The work in hand looks at `signal` between steps, saves, and raises `remask.errors.Stopped`.
    """

    def __init__(self) -> None:
        self.signal: int | None = None

    def __enter__(self) -> Self:
        self._before = {
            number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        if self.signal is not None and number == signal.SIGINT:
            os._exit(128 + number)  # asked twice: at once, whatever is in hand
        self.signal = number
