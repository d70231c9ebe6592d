"""A worker process: `python -m remask.runs.worker`, or a fork that calls `main`.

It reads one job per line from standard input and writes one event per line to standard output, as
JSON both ways. When its parent is gone its next report fails, and so it ends too.
"""

import os
import select
import signal
import sys
import warnings
from pathlib import Path
from typing import BinaryIO

from pydantic import BaseModel, ConfigDict

from remask.benchmarks import UnreadableImageWarning
from remask.config import TrialConfig
from remask.machine import keep_freed_memory
from remask.runs.events import to_line
from remask.runs.forking import leave
from remask.runs.options import RunOptions
from remask.runs.plans import Job
from remask.runs.signals import StopRequest
from remask.runs.train import run_job

_INPUT, _OUTPUT, _ERRORS = range(3)


class Order(BaseModel):
    """What a worker is told to do."""

    model_config = ConfigDict(frozen=True)
    configs: tuple[TrialConfig, ...]
    folder: Path
    options: RunOptions
    path: tuple[str, ...]
    """Where the parent looks for modules: a script's own folder is there, and its modules."""


def main() -> int:
    """Run the jobs on standard input."""
    # Only events may reach the parent: what a library prints goes to standard error.
    channel = os.fdopen(os.dup(_OUTPUT), "wb", buffering=0)
    os.dup2(_ERRORS, _OUTPUT)
    # The parent has loaded the same data, and said so once for all.
    warnings.simplefilter("ignore", UnreadableImageWarning)

    keep_freed_memory()
    with StopRequest() as stop:
        # Ctrl-C reaches every process of the terminal; the parent decides, and sends SIGTERM.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for line in os.fdopen(_INPUT, "rb", closefd=False):
            if not line.endswith(b"\n"):  # the parent left in the middle of it
                break
            if not _has_reader(channel):  # killed, and another process may have its run by now
                return 1
            order = Order.model_validate_json(line)
            # At the end: what lies in a script's folder must not stand for an installed package.
            sys.path += [folder for folder in order.path if folder and folder not in sys.path]
            try:
                for event in run_job(Job(order.configs), order.folder, order.options, stop):
                    channel.write(to_line(event))
            except BrokenPipeError:
                return 1
            if stop.signal is not None:
                return 128 + stop.signal
    return 0


def _has_reader(channel: BinaryIO) -> bool:
    """Whether the parent is still there to read."""
    if not hasattr(select, "poll"):
        return True
    poll = select.poll()
    poll.register(channel, 0)  # errors are told in any case
    return not poll.poll(0)


if __name__ == "__main__":
    leave(main())
