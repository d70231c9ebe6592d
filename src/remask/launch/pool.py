"""Run many jobs at once, in this process or in several."""

import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from remask.errors import Stopped
from remask.launch.events import Event, Failed, Finished, from_line
from remask.launch.execute import Options, execute
from remask.launch.failures import describe_failure
from remask.launch.jobs import Job
from remask.launch.signals import StopRequest
from remask.launch.worker import Order

_SECONDS_TO_SAVE = 60.0
"""How long a worker that was asked to stop may take to save."""


def run_jobs(
    jobs: Sequence[tuple[Job, Path]],
    *,
    workers: int,
    options: Options,
    stop: StopRequest,
) -> Iterator[Event]:
    """Run jobs, each with a folder for its checkpoints, and yield what they report.

    Raises `Stopped` once everything is saved, if asked to stop.
    """
    if workers == 1 or len(jobs) <= 1:
        yield from _run_here(jobs, options, stop)
    else:
        yield from _run_in_workers(jobs, min(workers, len(jobs)), options, stop)


def _run_here(
    jobs: Sequence[tuple[Job, Path]], options: Options, stop: StopRequest
) -> Iterator[Event]:
    """One job after the other."""
    for job, folder in jobs:
        try:
            yield from execute(job, folder, options, stop)
        except Stopped:
            raise
        except Exception as error:
            yield Failed(job.name, describe_failure(error))


def _run_in_workers(
    jobs: Sequence[tuple[Job, Path]], workers: int, options: Options, stop: StopRequest
) -> Iterator[Event]:
    """Hand jobs to worker processes, a new one as soon as one is done."""
    waiting = list(reversed(jobs))
    events: queue.SimpleQueue[tuple[int, Event | None]] = queue.SimpleQueue()
    in_hand: dict[int, Job] = {}
    with ExitStack() as cleanup:
        processes = [cleanup.enter_context(_worker()) for _ in range(workers)]
        cleanup.callback(_end, processes)
        for number, process in enumerate(processes):
            threading.Thread(target=_listen, args=(number, process, events), daemon=True).start()
            in_hand[number] = _give(process, *waiting.pop(), options)
        asked = False
        deadline = float("inf")
        while in_hand and time.monotonic() < deadline:
            try:
                number, event = events.get(timeout=0.1)
            except queue.Empty:
                number, event = -1, None
            if stop.signal is not None and not asked:
                asked = True
                deadline = time.monotonic() + _SECONDS_TO_SAVE
                for process in processes:
                    process.send_signal(signal.SIGTERM)
            if number < 0:
                continue
            process = processes[number]
            if event is None:  # the worker is gone
                job = in_hand.pop(number)
                if not asked:
                    yield Failed(job.name, _how_it_ended(process))
                continue
            yield event
            if isinstance(event, Finished | Failed):
                del in_hand[number]
                if waiting and not asked:
                    in_hand[number] = _give(process, *waiting.pop(), options)
        if asked and stop.signal is not None:
            raise Stopped(stop.signal)


def _worker() -> subprocess.Popen[bytes]:
    """A worker in a session of its own, so that a terminal's Ctrl-C reaches its parent only."""
    return subprocess.Popen(
        # -P: not with the current folder on the path, where anything may lie about.
        [sys.executable, "-P", "-m", "remask.launch"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


def _listen(
    number: int,
    process: subprocess.Popen[bytes],
    events: "queue.SimpleQueue[tuple[int, Event | None]]",
) -> None:
    """Pass on what a worker says; at last None, when it has ended, for whatever reason."""
    assert process.stdout is not None
    try:
        for line in process.stdout:
            events.put((number, from_line(line)))
    except ValueError:  # not an event: nothing more that it says can be trusted
        process.kill()
    process.wait()
    events.put((number, None))


def _give(process: subprocess.Popen[bytes], job: Job, folder: Path, options: Options) -> Job:
    order = Order(configs=job.configs, folder=folder, options=options)
    stdin: IO[bytes] | None = process.stdin
    assert stdin is not None
    stdin.write(order.model_dump_json().encode() + b"\n")
    stdin.flush()
    return job


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Leave no worker behind, whatever made us leave."""
    for process in processes:
        if process.stdin is not None:
            process.stdin.close()  # no more orders: an idle worker ends
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    for process in processes:
        try:
            process.wait(_SECONDS_TO_SAVE)
        except subprocess.TimeoutExpired:
            process.kill()


def _how_it_ended(process: subprocess.Popen[bytes]) -> str:
    code = process.returncode
    if code == -signal.SIGKILL:
        return (
            "the worker process was killed, perhaps for want of memory; run the same command "
            "again to go on from the latest checkpoint, with fewer --workers if memory is short"
        )
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"the worker process ended with {how}; run the same command again to go on"
