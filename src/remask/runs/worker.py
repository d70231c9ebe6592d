"""A worker process: `python -m remask.runs`.

It reads one job a line from standard input and writes events, one a line, to standard output, as
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
from remask.errors import Stopped
from remask.runs.events import Failed, to_line
from remask.runs.execute import execute
from remask.runs.failures import describe_failure
from remask.runs.jobs import Job
from remask.runs.options import RunOptions
from remask.runs.signals import StopRequest


class Order(BaseModel):
    """What a worker is told to do."""

    model_config = ConfigDict(frozen=True)
    configs: tuple[TrialConfig, ...]
    folder: Path
    options: RunOptions
    path: tuple[str, ...]
    """Where the parent looks for modules: a script's own folder is there, and its modules."""


def _is_heard(channel: BinaryIO) -> bool:
    """Whether the parent is still there to read."""
    if not hasattr(select, "poll"):
        return True
    reader = select.poll()
    reader.register(channel, 0)  # it tells of errors, whatever it is asked for
    return not reader.poll(0)


def main() -> int:
    """Work off the orders on standard input."""
    # Only this process's own lines may reach the parent: whatever a library prints goes astray.
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    # Ctrl-C reaches every process of the terminal; the parent decides, and sends SIGTERM.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The parent has loaded the same data, and said so once for all.
    warnings.simplefilter("ignore", UnreadableImageWarning)

    with StopRequest() as stop:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for line in sys.stdin.buffer:
            if not line.endswith(b"\n"):  # the parent left in the middle of it
                break
            if not _is_heard(channel):  # it was killed, and another process may have its run by now
                return 1
            order = Order.model_validate_json(line)
            job = Job(order.configs)
            # At the end: what lies in a script's folder must not stand for an installed package.
            sys.path += [folder for folder in order.path if folder and folder not in sys.path]
            try:
                for event in execute(job, order.folder, order.options, stop):
                    channel.write(to_line(event))
            except Stopped as stopped:
                return stopped.exit_code
            except BrokenPipeError:
                return 1
            except Exception as error:
                channel.write(to_line(Failed(job.name, describe_failure(error))))
            if stop.signal is not None:
                return 128 + stop.signal
    return 0
