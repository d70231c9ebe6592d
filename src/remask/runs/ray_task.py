"""A stack on a node of a Ray cluster: what its worker process does, and what it sends back."""

import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import remask
from remask.benchmarks import Benchmark, resplit
from remask.config import TrialConfig
from remask.engine.checkpoints import checkpoints_in
from remask.machine import keep_freed_memory
from remask.record import TrialRecord
from remask.runs.checkpoint_mirror import CheckpointMirror, is_address
from remask.runs.device_memory import largest_stack_on
from remask.runs.events import Advanced, Event, Failed, Finished
from remask.runs.jobs import Job
from remask.runs.options import RunOptions
from remask.runs.scratch import scratch_folder
from remask.runs.shipping import Arrays, importable, read_files, write_files
from remask.runs.signals import StopRequest
from remask.runs.train import run_job

_MOST_LOG = 1 << 16
"""Bytes of what a process has written that are sent at once."""


@dataclass(frozen=True)
class Order:
    """What a worker process on a node is told to do."""

    job: Job
    options: RunOptions
    version: str
    """Of the remask that gives the order."""
    code: dict[str, bytes]
    """The files of the user's own code."""
    checkpoints: str | None
    """The folder or address, shared by all nodes, that has the checkpoints of the job."""
    data: str
    """What the benchmark's arrays are known by."""
    seconds_between_reports: float
    """Of how far the stack is; what comes sooner is not sent."""


@dataclass(frozen=True)
class Began:
    """Where the stack runs, and where its process writes what it prints."""

    node: str
    host: str
    logs: dict[str, int] = field(default_factory=dict)
    """Files on the node, and how long each was when the stack began."""


@dataclass(frozen=True)
class Files:
    """Files that belong on the machine that gave the order."""

    kind: Literal["checkpoints", "nets"]
    files: dict[str, bytes]


@dataclass(frozen=True)
class Printed:
    """What the process has printed since."""

    text: str


Message = Event | Began | Files | Printed


def train_stack(
    order: Order, arrays: Arrays, checkpoint: dict[str, bytes], stop_asked: Sequence[Any]
) -> Iterator[Message]:
    """Train a job on this node; the body of a Ray task.

    `checkpoint` is what the giver of the order has of earlier sessions. `stop_asked` has one
    object of Ray's, which is there as soon as everybody is to stop.
    """
    import ray

    node = ray.get_runtime_context().get_node_id()
    log = _Log()
    yield Began(node, socket.gethostname(), dict(log.read_to))
    if order.version != remask.__version__:
        yield Failed(
            order.job.name,
            f"the node {socket.gethostname()} has remask {remask.__version__}, and this machine "
            f"{order.version}: install the same on all of them",
        )
        return
    keep_freed_memory()
    stop = StopRequest()
    threading.Thread(target=_watch, args=(stop_asked, stop), daemon=True).start()
    with scratch_folder() as scratch, importable(order.code, scratch / "code"):
        for message in _train(order, arrays, checkpoint, stop, scratch):
            if order.options.logs is not None and (text := log.news()):
                yield Printed(text)
            yield message
    if order.options.logs is not None and (text := log.news()):
        yield Printed(text)


def measure_stack(
    config: TrialConfig, arrays: Arrays, code: dict[str, bytes], options: RunOptions
) -> int:
    """How many trials like this one fit on a device of this node; the body of a Ray task."""
    with scratch_folder() as scratch, importable(code, scratch / "code"):
        return largest_stack_on(config, arrays.benchmark(), options)


def _train(
    order: Order,
    arrays: Arrays,
    checkpoint: dict[str, bytes],
    stop: StopRequest,
    scratch: Path,
) -> Iterator[Message]:
    options = order.options
    nets = scratch / "nets"
    if options.save_nets is not None:
        options = options.model_copy(update={"save_nets": nets})
    shared = order.checkpoints
    mirror = CheckpointMirror(shared) if shared is not None and is_address(shared) else None
    folder = scratch / "checkpoints" if shared is None or mirror is not None else Path(shared)
    if mirror is not None:
        mirror.fetch(folder)
    # The larger number is of the later state.
    known = [path.name for path in checkpoints_in(folder).values()]
    if max(checkpoint, default="") > max(known, default=""):
        write_files(folder, checkpoint)
    ended, next_report = False, 0.0
    for event in run_job(
        order.job,
        folder,
        options,
        stop,
        benchmark=_benchmark(order.data, order.job.configs[0], arrays),
        after_save=None if mirror is None else lambda: mirror.push(folder),
    ):
        if isinstance(event, Advanced):
            if time.monotonic() < next_report:
                continue
            next_report = time.monotonic() + order.seconds_between_reports
        ended = isinstance(event, Finished | Failed)
        if isinstance(event, Finished):
            if options.save_nets is not None:
                yield Files("nets", read_files(nets.glob("*")))
            event = replace(event, records=[_on_this_host(record) for record in event.records])
        yield event
    if not ended and shared is None:
        yield Files("checkpoints", read_files(checkpoints_in(folder).values()))


def _watch(stop_asked: Sequence[Any], stop: StopRequest) -> None:
    """Request a stop once the flag is raised; a flag that is gone requests nothing."""
    import ray

    with suppress(ray.exceptions.RayError):
        ray.get(list(stop_asked))
        stop.signal = signal.SIGTERM


_arrays: dict[str, Arrays] = {}


def _benchmark(key: str, config: TrialConfig, arrays: Arrays) -> Benchmark:
    """The benchmark of a trial, made of arrays in shared memory; checked once per process."""
    if key not in _arrays:
        _arrays.clear()
        _arrays[key] = arrays
    return _dealt(key, config.tasks, config.class_order, config.limit)


@lru_cache(maxsize=1)
def _dealt(
    key: str, tasks: int | None, class_order: int | tuple[int, ...] | None, limit: int | None
) -> Benchmark:
    benchmark = _arrays[key].benchmark()
    return resplit(benchmark, tasks=tasks, class_order=class_order, limit=limit)


def _on_this_host(record: TrialRecord) -> TrialRecord:
    machine = {**record.machine, "host": socket.gethostname()}
    return record.model_copy(update={"machine": machine})


class _Log:
    """What this process prints: Ray has it in files."""

    def __init__(self) -> None:
        self.read_to: dict[str, int] = {}
        for descriptor in (1, 2):
            with suppress(OSError):
                path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
                if Path(path).is_file():
                    self.read_to[path] = Path(path).stat().st_size

    def news(self) -> str:
        """What was printed since this was asked last."""
        text = ""
        for path, start in self.read_to.items():
            printed = read_log(path, start)
            self.read_to[path] = start + len(printed)
            text += printed.decode(errors="replace")
        return text


def read_log(path: str, start: int) -> bytes:
    """What a file has from a place on, and not more than can be sent at once."""
    try:
        with Path(path).open("rb") as stream:
            stream.seek(start)
            return stream.read(_MOST_LOG)
    except OSError:
        return b""


def last_words(logs: dict[str, int]) -> str:
    """The end of what a dead process on this node has printed; the body of a Ray task."""
    texts = []
    for path, start in logs.items():
        size = Path(path).stat().st_size if Path(path).exists() else start
        text = read_log(path, max(start, size - _MOST_LOG)).decode(errors="replace")
        # Ray's own marks, which say which task a line is of.
        texts += [line for line in text.splitlines() if not line.startswith(":")]
    return "\n".join(texts)
