"""Many machines: the jobs of a run as tasks of a Ray cluster, one task per stack.

Ray decides where a task runs. This process hands out the work, shows events, and alone writes the
store.
"""

import os
import socket
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from remask.errors import MissingPackageError, RemaskError
from remask.experiments.executors import Executor
from remask.experiments.job_queue import JobQueue
from remask.experiments.jobs import Event
from remask.experiments.options import RunOptions
from remask.experiments.ray_node import CheckpointMirror
from remask.experiments.ray_stacks import Stacks
from remask.files import AnyPath, make_folder
from remask.machine import StopRequest

_SECONDS_TO_ANSWER = 10.0
_T = TypeVar("_T")


class ClusterError(RemaskError):
    """The cluster cannot be used; the message says why, and what to do."""


class Ray(Executor):
    """Trains stacks on a Ray cluster, each with `cpus` CPUs and `gpus` GPUs of a node.

    `address` is that of the cluster; None means $RAY_ADDRESS, else the cluster that this machine
    is in, else a new one on this machine; `local` always means a new one on this machine. `cpus`
    is the number of threads by default; `gpus` is 1 with a CUDA device, and may be a fraction.
    `tries` is how often a stack is tried whose worker, node or program fails. `checkpoints` is a
    folder that all nodes share, or an address such as `s3://bucket/folder`: a stack whose node
    died continues from there. `logs` is a folder of this machine for what the stacks print.
    """

    on_this_machine = False

    def __init__(
        self,
        address: str | None = None,
        *,
        cpus: float | None = None,
        gpus: float | None = None,
        tries: int = 3,
        checkpoints: AnyPath | None = None,
        logs: AnyPath | None = None,
    ) -> None:
        asked: dict[str, Any] = {"address": address, "cpus": cpus, "gpus": gpus, "tries": tries}
        options = RunOptions(on="ray", checkpoints=checkpoints, logs=logs, **asked)  # checks them
        self.tries = options.tries
        self._address, self._cpus, self._gpus = options.address, options.cpus, options.gpus
        self.logs = options.logs
        self.checkpoints: str | None = None
        """Where all nodes find checkpoints, if anywhere."""
        if options.checkpoints is not None:
            self.checkpoints = CheckpointMirror(options.checkpoints).address
            if "://" not in self.checkpoints:
                make_folder(Path(self.checkpoints))
        try:
            self.ray: Any = import_module("ray")
        except ImportError:
            raise MissingPackageError(
                "running on a cluster needs Ray, which is not installed: pip install ray"
            ) from None
        self._connected_here = False

    @classmethod
    def of(cls, options: RunOptions) -> "Ray":
        """The executor that these options ask for."""
        names = ("cpus", "gpus", "tries", "checkpoints", "logs")
        return cls(options.address, **{name: getattr(options, name) for name in names})

    def at_once(self, options: RunOptions) -> int:
        """How many stacks have a place in the cluster at this moment."""
        self._connect()
        return max(self.places(options), 1)

    def call(self, function: Callable[..., _T], *args: Any, options: RunOptions) -> _T:
        """Call a function on a node, with the CPUs and GPUs of a stack."""
        self._connect()
        try:
            task = self.ray.remote(**self.resources(options))(function)
            answer: _T = self.ray.get(task.remote(*args))
        except self.ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, RemaskError):
                raise error.cause from None
            raise ClusterError(f"a measurement on a node failed: {error}") from error
        return answer

    def disconnect(self) -> None:
        """Leave the cluster if this executor connected to it, and not its caller."""
        if self._connected_here:
            self.ray.shutdown()
            self._connected_here = False

    def run(self, queue: JobQueue, options: RunOptions, stop: StopRequest) -> Generator[Event]:
        """See `Executor.run`."""
        if self.logs is not None:
            make_folder(self.logs)
        # Ray prints about its workers on standard output, where only results belong.
        with redirect_stdout(sys.stderr):
            self._connect()
            try:
                yield from Stacks(self, options, stop).train(queue)
            finally:
                self.disconnect()

    def _connect(self) -> None:
        if self.ray.is_initialized():
            return
        _check_reachable(self._address)
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no reports to Ray's makers
        try:
            self.ray.init(address=self._address, log_to_driver=False, logging_level="ERROR")
        except Exception as error:  # connections, versions and addresses raise many kinds
            place = "a Ray cluster" if self._address is None else f"Ray at {self._address}"
            raise ClusterError(
                f"cannot connect to {place}: {error}. Does it run there, with the same versions of "
                f"Ray and Python as here? If it asks for a token, set RAY_AUTH_MODE=token."
            ) from error
        self._connected_here = True

    def resources(self, options: RunOptions) -> dict[str, float]:
        """The CPUs and GPUs of a stack."""
        gpus = float(options.device.startswith("cuda")) if self._gpus is None else self._gpus
        cpus = float(options.threads) if self._cpus is None else self._cpus
        return {"num_cpus": cpus, "num_gpus": gpus}

    def places(self, options: RunOptions) -> int:
        """How many stacks the nodes can train at once, whatever else they do."""
        needed = self.resources(options)
        nodes = (node["Resources"] for node in self.ray.nodes() if node["Alive"])
        return sum(places_on(node, **needed) for node in nodes)


def places_on(resources: Mapping[str, float], num_cpus: float, num_gpus: float) -> int:
    """How many stacks fit on a node; one that takes part of a GPU cannot have parts of two."""
    places, there = int(resources.get("CPU", 0.0) / num_cpus), resources.get("GPU", 0.0)
    if not num_gpus:
        return places
    return min(places, int(there) * int(1 / num_gpus) if num_gpus < 1 else int(there / num_gpus))


def _check_reachable(address: str | None) -> None:
    """Raise ClusterError unless something listens at the address; Ray itself tries for minutes.

    `local`, or an address that Ray is going to choose, passes.
    """
    source = ""
    if address is None or address == "auto":
        folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
        last = Path(folder) / "ray" / "ray_current_cluster"
        address, source = os.environ.get("RAY_ADDRESS", ""), ", the address in $RAY_ADDRESS"
        if not address and last.exists():
            address = last.read_text(errors="replace").strip()
            source = f", the address of the last cluster in {last}"
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or not host:
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _SECONDS_TO_ANSWER).close()
    except (OSError, OverflowError) as error:
        raise ClusterError(
            f"no Ray cluster answers at {address}{source} ({error}). Start one with "
            f"`ray start --head`, which prints its address, or use `--address local` for a new one "
            f"on this machine alone."
        ) from error
