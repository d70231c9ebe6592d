"""Worker processes as their parent sees them.

One thread does all of it, and no pipe is ever waited for alone: a worker that is stopped, dead or
too busy to listen holds up nobody else.
"""

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from remask.runs.events import Event, from_line
from remask.runs.jobs import Work
from remask.runs.options import RunOptions
from remask.runs.worker import Order

_PIECE = 1 << 16
_SECONDS_BETWEEN_LOOKS = 0.1
_SECONDS_TO_EXIT = 5.0
"""How long a process may take to end after it has closed its output."""


class Worker:
    """A process that works off jobs, one at a time.

    It has a session of its own, so that a terminal's Ctrl-C, or its end, reaches the parent only.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            # -P: not with the current folder on the path, where anything may lie about.
            [sys.executable, "-P", "-m", "remask.runs"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.orders, self.words = self._process.stdin, self._process.stdout
        for pipe in (self.orders, self.words):
            os.set_blocking(pipe.fileno(), False)
        self.work: Work | None = None
        """What it has in hand."""
        self.exit_code: int | None = None
        """Minus a signal's number if that ended it; None while it lives."""
        self.unsent = b""
        self._unread = b""

    def give(self, work: Work, options: RunOptions) -> None:
        """Hand it a piece of work."""
        order = Order(
            configs=work.job.configs, folder=work.folder, options=options, path=tuple(sys.path)
        )
        self.work = work
        # Not the path of the data: it may be no valid Unicode, and the data is in the cache by now.
        self.unsent += order.model_dump_json(exclude={"options": {"data"}}).encode() + b"\n"

    def exchange(self) -> list[Event]:
        """Send what it takes and read what it has said, without waiting for either."""
        self._send()
        return self._receive()

    def ask_to_end(self) -> None:
        """Tell it to save and end; one that somebody has stopped must first go on."""
        self.unsent = b""
        self.orders.close()  # an idle one waits for orders, and not for signals
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.send_signal(signal.SIGCONT)

    def end_now(self) -> None:
        """End it, whatever it is doing, and forget it."""
        self._process.kill()
        self.exit_code = self._process.wait()
        self.orders.close()
        self.words.close()

    def _send(self) -> None:
        with suppress(BlockingIOError):
            try:
                while self.unsent:
                    self.unsent = self.unsent[os.write(self.orders.fileno(), self.unsent) :]
            except BrokenPipeError:  # it is gone, as its silence will show
                self.unsent = b""

    def _receive(self) -> list[Event]:
        # Asked first: whatever it said before its end can be read by then.
        ended = self._process.poll() is not None
        try:
            while piece := os.read(self.words.fileno(), _PIECE):
                self._unread += piece
            ended = True
        except BlockingIOError:  # nothing more for now
            pass
        *lines, self._unread = self._unread.split(b"\n")
        events: list[Event] = []
        try:
            events.extend(from_line(line) for line in lines)
        except ValueError:  # not an event: nothing more that it says can be trusted
            self._process.kill()
            ended = True
        if ended:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_SECONDS_TO_EXIT)
            self.end_now()
        return events


def wait_for_any(workers: Sequence[Worker]) -> None:
    """Until one of them has something to say or takes an order, or a moment has passed."""
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker.words, selectors.EVENT_READ)
            if worker.unsent:
                selector.register(worker.orders, selectors.EVENT_WRITE)
        if workers:
            selector.select(_SECONDS_BETWEEN_LOOKS)
        else:
            time.sleep(_SECONDS_BETWEEN_LOOKS)


def end_all(workers: Sequence[Worker], seconds: float) -> None:
    """Leave no worker behind; each may take so long to save."""
    deadline = time.monotonic() + seconds
    left = [worker for worker in workers if worker.exit_code is None]
    for worker in left:
        worker.ask_to_end()
    while left and time.monotonic() < deadline:
        wait_for_any(left)
        for worker in left:
            worker.exchange()  # heard by nobody; but with a full pipe it could not end
        left = [worker for worker in left if worker.exit_code is None]
    for worker in left:
        worker.end_now()
