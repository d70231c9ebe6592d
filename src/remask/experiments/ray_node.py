"""A stack on a node of a Ray cluster: the work of its process, and what it sends back."""

import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

import remask
from remask.config import TrialConfig
from remask.data.benchmark import Benchmark, resplit
from remask.engine.checkpoints import checkpoints_in, is_checkpoint
from remask.errors import MissingPackageError, SettingsError
from remask.experiments.jobs import Event, Failed, Finished, Job
from remask.experiments.options import RunOptions
from remask.experiments.train import run_job
from remask.files import DurabilityError, is_running, make_folder, write_atomically
from remask.machine import StopRequest, keep_freed_memory
from remask.own_code import find_source, names_own_code

_LOG_BYTES = 1 << 16
"""How much of a log is sent at once."""
_SCRATCH = "remask-stack-"
_CHECKPOINTS_KEPT = 2
_PACKAGES = {"s3": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "az": "adlfs"}

Arrays = Mapping[str, Any]
"""The fields of a benchmark with tensors as numpy arrays, which Ray maps from shared memory."""


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
    seconds_between_reports: float


@dataclass(frozen=True)
class Began:
    """Where the stack runs, and the sizes of the files that its process prints into."""

    node: str
    host: str
    logs: dict[str, int]


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

    logs, host = _log_sizes(), socket.gethostname()
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

    def watch() -> None:
        with suppress(ray.exceptions.RayError):  # a flag that is gone requests nothing
            ray.get(list(stop_asked))
            stop.signal = signal.SIGTERM

    threading.Thread(target=watch, daemon=True).start()
    with scratch_folder(order.code) as scratch:
        for message in _train(order, arrays, checkpoint, stop, scratch):
            if order.options.logs is not None and (text := read_logs(logs)):
                yield Printed(text)
            if isinstance(message, Finished):
                records = [
                    record.model_copy(update={"machine": {**record.machine, "host": host}})
                    for record in message.records
                ]
                message = replace(message, records=records)
            yield message


def _train(
    order: Order, arrays: Arrays, checkpoint: dict[str, bytes], stop: StopRequest, scratch: Path
) -> Iterator[Message]:
    options, nets, folder = order.options, scratch / "nets", scratch / "checkpoints"
    if options.save_nets is not None:
        options = options.model_copy(update={"save_nets": nets})
    mirror = None if order.checkpoints is None else CheckpointMirror(order.checkpoints)
    if mirror is not None:
        mirror.fetch(folder)
    # The larger number belongs to the later state.
    known = [path.name for path in checkpoints_in(folder).values()]
    if max(checkpoint, default="") > max(known, default=""):
        write_files(folder, checkpoint)
    ended = False
    for event in run_job(
        order.job,
        folder,
        options,
        stop,
        benchmark=resplit(as_benchmark(arrays), **order.job.configs[0].split),
        after_save=None if mirror is None else lambda: mirror.push(folder),
        seconds_between_reports=order.seconds_between_reports,
    ):
        ended = isinstance(event, Finished | Failed)
        if isinstance(event, Finished) and options.save_nets is not None:
            yield Files("nets", read_files(nets.glob("*")))
        yield event
    if not ended and mirror is None:
        yield Files("checkpoints", read_files(checkpoints_in(folder).values()))


def as_arrays(benchmark: Benchmark) -> Arrays:
    """The fields of a benchmark, without copying them."""
    values = {field.name: getattr(benchmark, field.name) for field in fields(benchmark)}
    return {
        name: value.cpu().numpy() if isinstance(value, torch.Tensor) else value
        for name, value in values.items()
    }


def as_benchmark(arrays: Arrays) -> Benchmark:
    """The benchmark, without copying its arrays."""
    with warnings.catch_warnings():
        # Shared memory is read-only, and nothing writes into a benchmark.
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        values: dict[str, Any] = {
            name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value
            for name, value in arrays.items()
        }
    return Benchmark(**values)


def _log_sizes() -> dict[str, int]:
    """The files that Ray writes the output of this process to, and their sizes."""
    sizes = {}
    for descriptor in (1, 2):
        with suppress(OSError):
            path = Path(f"/proc/self/fd/{descriptor}").readlink()
            if path.is_file():
                sizes[str(path)] = path.stat().st_size
    return sizes


def read_logs(logs: dict[str, int], *, end: bool = False) -> str:
    """What was printed after the positions in `logs`, which advance; with `end`, its end."""
    text = ""
    for path, start in list(logs.items()):
        with suppress(OSError), Path(path).open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(start, size - _LOG_BYTES) if end else start)
            text += stream.read(_LOG_BYTES).decode(errors="replace")
            logs[path] = stream.tell()
    return text


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files into a folder, each whole or not at all."""
    for name, content in files.items():
        make_folder((folder / name).parent)
        write_atomically(folder / name, content)


def read_files(paths: Iterable[Path]) -> dict[str, bytes]:
    """The contents of files, by their names."""
    return {path.name: path.read_bytes() for path in sorted(paths)}


def own_files(config: TrialConfig) -> dict[str, bytes]:
    """The files of the user's own code that a trial needs, by path; imports nothing."""
    names = filter(names_own_code, (config.method, config.net))
    sources = [find_source(name.partition(":")[0]) for name in names]
    return {path: data for source in sources if source for path, data in source.files.items()}


@contextmanager
def scratch_folder(code: Mapping[str, bytes]) -> Iterator[Path]:
    """A temporary folder while in the block, with code that can be imported.

    The folders of processes that were killed are removed.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{_SCRATCH}{os.getuid()}-*"):
        if not is_running(int(folder.name.split("-")[-2])):
            shutil.rmtree(folder, ignore_errors=True)
    prefix = f"{_SCRATCH}{os.getuid()}-{os.getpid()}-"
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as made:
        folder = Path(made).resolve()
        with _importable(code, folder / "code"):
            yield folder


@contextmanager
def _importable(files: Mapping[str, bytes], folder: Path) -> Iterator[None]:
    """Make files importable while in the block, and unload their modules afterwards.

    Their folder is the current one meanwhile: an older copy of a module may be where the process
    was started.
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


class CheckpointMirror:
    """The copy of a checkpoint folder in a shared folder, or at an address that fsspec understands.

    What is read back is checked as any checkpoint is, so of a copy that was cut short, the
    checkpoint before it is used.
    """

    def __init__(self, place: str) -> None:
        # The nodes work in other folders.
        self.address = place.rstrip("/") if "://" in place else str(Path(place).resolve())
        try:
            self._files, self._path = import_module("fsspec").url_to_fs(self.address)
        except ImportError:
            package = _PACKAGES.get(place.partition(":")[0], "fsspec")
            raise MissingPackageError(
                f"checkpoints at {place} need a package that is not installed: pip install "
                f"{package}, on this machine and on every node"
            ) from None
        except ValueError as error:
            raise SettingsError(f"checkpoints = {place!r}: {error}") from None

    def fetch(self, folder: Path) -> None:
        """Copy the newest checkpoints into a folder."""
        make_folder(folder)
        with self._explained("read"):
            for name in sorted(self._names())[-_CHECKPOINTS_KEPT:]:
                write_files(folder, {name: self._files.cat_file(f"{self._path}/{name}")})

    def push(self, folder: Path) -> None:
        """Make the copy like the folder: new checkpoints are written before old ones go."""
        here = {path.name: path for path in checkpoints_in(folder).values()}
        with self._explained("write"):
            there = self._names()
            self._files.makedirs(self._path, exist_ok=True)
            for name in sorted(here.keys() - there):
                self._files.put_file(str(here[name]), f"{self._path}/{name}")
            for name in there - here.keys():
                self._files.rm_file(f"{self._path}/{name}")

    def remove(self) -> None:
        """Remove the copy."""
        with self._explained("remove"):
            if self._files.exists(self._path):
                self._files.rm(self._path, recursive=True)

    def _names(self) -> set[str]:
        self._files.invalidate_cache()  # another machine may have written
        there = self._files.exists(self._path)
        paths = self._files.ls(self._path, detail=False) if there else []
        return set(filter(is_checkpoint, (str(path).rpartition("/")[2] for path in paths)))

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # each kind of store has errors of its own
            raise DurabilityError(
                f"cannot {what} checkpoints at {self.address}: {type(error).__name__}: {error}. "
                f"Check the place and your access to it, then try again."
            ) from error
