"""A stack on a node of a Ray cluster: the work of its process, and what it sends back."""

import fcntl
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

import remask
from remask.config import TrialConfig
from remask.data.benchmark import Benchmark, resplit
from remask.engine import TrialStack
from remask.engine.checkpoints import checkpoints_in
from remask.experiments.checkpoint_mirror import CheckpointMirror, is_address
from remask.experiments.jobs import Advanced, Event, Failed, Finished, Job
from remask.experiments.options import RunOptions
from remask.experiments.train import run_job
from remask.files import make_folder, write_atomically
from remask.machine import StopRequest, TooLargeError, keep_freed_memory, write_bytes
from remask.own_code import find_source, names_own_code

MOST_TRIALS = 64
"""Larger stacks gain nothing."""
_MOST_LOG = 1 << 16
"""Bytes of a log that are sent at once."""
_SCRATCH = "remask-stack-"
_SECONDS_TO_LOCK = 60.0
"""A younger scratch folder may belong to a process that has not locked it yet."""
_USABLE = 0.9
"""The usable share of a device's free memory: allocators leave gaps."""
_MEASURED_STEPS = 3


@dataclass(frozen=True)
class Arrays:
    """A benchmark whose tensors are numpy arrays, which can be mapped from shared memory."""

    fields: Mapping[str, Any]

    @classmethod
    def of(cls, benchmark: Benchmark) -> "Arrays":
        """The parts of a benchmark, without copying them."""
        values = {field.name: getattr(benchmark, field.name) for field in fields(benchmark)}
        return cls(
            {
                name: value.cpu().numpy() if isinstance(value, torch.Tensor) else value
                for name, value in values.items()
            }
        )

    def benchmark(self) -> Benchmark:
        """The benchmark, without copying its parts."""
        with warnings.catch_warnings():
            # Shared memory is read-only, and nothing writes into a benchmark.
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            parts: dict[str, Any] = {
                name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value
                for name, value in self.fields.items()
            }
        return Benchmark(**parts)


@dataclass(frozen=True)
class Order:
    """What a process on a node is to do."""

    job: Job
    options: RunOptions
    version: str
    """The version of remask of the sender."""
    code: dict[str, bytes]
    """The files of the user's own code."""
    checkpoints: str | None
    """The folder or address, shared by all nodes, of the job's checkpoints."""
    data: str
    """The name of the benchmark's arrays."""
    seconds_between_reports: float


@dataclass(frozen=True)
class Began:
    """Where the stack runs, and where its process writes what it prints."""

    node: str
    host: str
    logs: dict[str, int] = field(default_factory=dict)
    """Files on the node, and their sizes when the stack began."""


@dataclass(frozen=True)
class Files:
    """Files for the machine that sent the order."""

    kind: Literal["checkpoints", "nets"]
    files: dict[str, bytes]


@dataclass(frozen=True)
class Printed:
    """What the process has printed since the last message."""

    text: str


Message = Event | Began | Files | Printed


def train_stack(
    order: Order, arrays: Arrays, checkpoint: dict[str, bytes], stop_asked: Sequence[Any]
) -> Iterator[Message]:
    """Train a job on this node; the body of a Ray task.

    `checkpoint` holds files of earlier sessions. `stop_asked` has one Ray object, which is ready
    when everything is to stop.
    """
    import ray

    logs = _log_sizes()
    host = socket.gethostname()
    yield Began(ray.get_runtime_context().get_node_id(), host, dict(logs))
    if order.version != remask.__version__:
        yield Failed(
            order.job.name,
            f"the node {host} has remask {remask.__version__}, and this machine {order.version}: "
            f"install the same version everywhere",
        )
        return
    keep_freed_memory()
    stop = StopRequest()
    threading.Thread(target=_watch, args=(stop_asked, stop), daemon=True).start()
    with scratch_folder() as scratch, importable(order.code, scratch / "code"):
        for message in _train(order, arrays, checkpoint, stop, scratch):
            if order.options.logs is not None and (text := _new_lines(logs)):
                yield Printed(text)
            yield message


def _train(
    order: Order,
    arrays: Arrays,
    checkpoint: dict[str, bytes],
    stop: StopRequest,
    scratch: Path,
) -> Iterator[Message]:
    options, nets, shared = order.options, scratch / "nets", order.checkpoints
    if options.save_nets is not None:
        options = options.model_copy(update={"save_nets": nets})
    mirror = CheckpointMirror(shared) if shared is not None and is_address(shared) else None
    folder = scratch / "checkpoints" if shared is None or mirror is not None else Path(shared)
    if mirror is not None:
        mirror.fetch(folder)
    # The larger number belongs to the later state.
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
            host = socket.gethostname()
            records = [
                record.model_copy(update={"machine": {**record.machine, "host": host}})
                for record in event.records
            ]
            event = replace(event, records=records)
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
    return _resplit(key, config.tasks, config.class_order, config.limit)


@lru_cache(maxsize=1)
def _resplit(
    key: str, tasks: int | None, class_order: int | tuple[int, ...] | None, limit: int | None
) -> Benchmark:
    benchmark = _arrays[key].benchmark()
    return resplit(benchmark, tasks=tasks, class_order=class_order, limit=limit)


# ---- What the process prints ---------------------------------------------------------------------


def _log_sizes() -> dict[str, int]:
    """The files that Ray writes the output of this process to, and their sizes."""
    sizes = {}
    for descriptor in (1, 2):
        with suppress(OSError):
            path = Path(f"/proc/self/fd/{descriptor}").readlink()
            if path.is_file():
                sizes[str(path)] = path.stat().st_size
    return sizes


def _new_lines(read_to: dict[str, int]) -> str:
    """What was printed since the last call."""
    text = ""
    for path, start in read_to.items():
        printed = _read_log(path, start)
        read_to[path] = start + len(printed)
        text += printed.decode(errors="replace")
    return text


def _read_log(path: str, start: int) -> bytes:
    with suppress(OSError), Path(path).open("rb") as stream:
        stream.seek(start)
        return stream.read(_MOST_LOG)
    return b""


def last_words(logs: dict[str, int]) -> str:
    """The last output of a dead process on this node; the body of a Ray task."""
    lines = []
    for path, start in logs.items():
        size = Path(path).stat().st_size if Path(path).exists() else start
        text = _read_log(path, max(start, size - _MOST_LOG)).decode(errors="replace")
        # Ray marks with a colon which task a line is of.
        lines += [line for line in text.splitlines() if not line.startswith(":")]
    return "\n".join(lines)


# ---- Files and code ------------------------------------------------------------------------------


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files into a folder, each whole or not at all."""
    for name, content in files.items():
        make_folder((folder / name).parent)
        write_atomically(folder / name, content)


def read_files(paths: Iterable[Path]) -> dict[str, bytes]:
    """The contents of files, by their names."""
    return {path.name: path.read_bytes() for path in sorted(paths)}


def own_files(names: Iterable[str]) -> dict[str, bytes]:
    """The files of the user's own code that these names need, by path; imports nothing."""
    files: dict[str, bytes] = {}
    for module in dict.fromkeys(name.partition(":")[0] for name in names if names_own_code(name)):
        source = find_source(module)
        if source is not None:
            files.update(source.files)
    return files


@contextmanager
def importable(files: Mapping[str, bytes], folder: Path) -> Iterator[None]:
    """Make files of the user's own code importable while in the block.

    Their folder is the current one meanwhile: an older copy of a module may be where the process
    was started. Afterwards their modules are unloaded, since the folder is removed.
    """
    if not files:
        yield
        return
    write_files(folder, files)
    before = Path.cwd()
    sys.path.insert(0, str(folder))
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
        sys.path[:] = [path for path in sys.path if path != str(folder)]
        for name, module in list(sys.modules.items()):
            if Path(getattr(module, "__file__", None) or "").is_relative_to(folder):
                del sys.modules[name]


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A temporary folder while in the block; also removes the folders of processes that died.

    A process locks its folder, and the operating system frees the lock when it dies.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{_SCRATCH}*"):
        with suppress(OSError):  # removed by another process, or locked
            status = folder.lstat()
            is_new = time.time() - status.st_mtime < _SECONDS_TO_LOCK
            if not is_new and status.st_uid == os.getuid():
                with _locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB):
                    shutil.rmtree(folder)
    with tempfile.TemporaryDirectory(prefix=_SCRATCH, ignore_cleanup_errors=True) as made:
        folder = Path(made).resolve()
        with _locked(folder, fcntl.LOCK_EX):
            yield folder


@contextmanager
def _locked(folder: Path, kind: int) -> Iterator[None]:
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, kind)
        yield
    finally:
        os.close(lock)


# ---- The memory of a device ----------------------------------------------------------------------


def measure_stack(
    config: TrialConfig, arrays: Arrays, code: dict[str, bytes], options: RunOptions
) -> int:
    """How many trials like this one fit on a device of this node; the body of a Ray task."""
    device = torch.device(options.device)
    module = torch.get_device_module(device)

    def peak(trials: int) -> int:
        module.empty_cache()
        module.reset_peak_memory_stats(device)
        before = module.memory_allocated(device)
        configs = [config.model_copy(update={"seed": seed}) for seed in range(trials)]
        stack = TrialStack(configs, arrays.benchmark(), device=device)
        for step, _ in enumerate(stack.run(), start=1):
            if step == _MEASURED_STEPS:
                break
        return int(module.max_memory_allocated(device) - before)

    with scratch_folder() as scratch, importable(code, scratch / "code"):
        return trials_that_fit(peak, module.mem_get_info(device)[0])


def trials_that_fit(needed: Callable[[int], int], free: int) -> int:
    """The largest stack that fits into `free` bytes; `needed` measures a stack of a given size.

    Memory grows linearly with the trials, so two measurements suffice. Raises TooLargeError if one
    trial does not fit.
    """
    one, two = needed(1), needed(2)
    per_trial = max(two - one, 1)
    shared = max(one - per_trial, 0)
    usable = int(free * _USABLE)
    if one > usable:
        raise TooLargeError(
            f"one trial takes {write_bytes(one)} of the device's memory, and {write_bytes(usable)} "
            f"can be used; use a smaller buffer, batch or net"
        )
    return min((usable - shared) // per_trial, MOST_TRIALS)
