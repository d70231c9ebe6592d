"""Graceful stops: the first Ctrl-C, SIGTERM or SIGHUP saves first, a second Ctrl-C does not."""

import asyncio
import os
import signal
import threading
from types import FrameType
from typing import Any, Self


class StopRequest:
    """While entered, notes a first SIGINT, SIGTERM or SIGHUP in `signal` instead of obeying it.

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
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as under nohup
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


class StopFlag:
    """A flag that all nodes of a cluster can wait for; the body of a Ray actor."""

    def __init__(self) -> None:
        self._raised = asyncio.Event()

    async def wait(self) -> None:
        """Return when the flag is raised."""
        await self._raised.wait()

    async def raise_it(self) -> None:
        """Release all who wait."""
        self._raised.set()
