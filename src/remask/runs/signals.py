"""Graceful stops: the first Ctrl-C, SIGTERM or SIGHUP saves first, a second Ctrl-C does not."""

import os
import signal
import threading
from types import FrameType
from typing import Any, Self


class StopRequest:
    """While entered, a first SIGINT, SIGTERM or SIGHUP is noted instead of obeyed.

    A running job looks at `signal` between steps, saves, and ends. Signals reach the main thread
    only: in any other thread none is noted.
    """

    def __init__(self) -> None:
        self.signal: int | None = None

    def __enter__(self) -> Self:
        self._before: dict[int, Any] = {}
        if threading.current_thread() is not threading.main_thread():
            return self
        numbers = [signal.SIGINT, signal.SIGTERM]
        # Under nohup the end of the terminal is ignored.
        if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            numbers.append(signal.SIGHUP)
        self._before = {number: signal.signal(number, self._note) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        if self.signal is not None and number == signal.SIGINT:
            os._exit(128 + number)  # asked twice: at once, without saving
        self.signal = number
