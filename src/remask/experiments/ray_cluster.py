"""Many machines: the jobs of a run as tasks of a Ray cluster, one task per stack.

Ray decides where a task runs. This process hands out the work, shows events, and alone writes the
store.
"""

import os
import socket
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import torch

from remask.config import TrialConfig
from remask.engine import TrialStack
from remask.errors import MissingPackageError, RemaskError
from remask.experiments.executors import Executor, JobQueue
from remask.experiments.jobs import Event, Finished, Job, Note, Work, benchmark_of
from remask.experiments.options import RunOptions
from remask.experiments.ray_node import (
    Arrays,
    CheckpointMirror,
    as_arrays,
    as_benchmark,
    own_files,
    scratch_folder,
)
from remask.experiments.ray_stacks import Stacks, StopFlag, on_node
from remask.files import AnyPath, make_folder
from remask.machine import StopRequest, TooLargeError, write_bytes

_SECONDS_TO_ANSWER = 10.0
_SECONDS_BETWEEN_COUNTS = 1.0
_GIVEN_PER_PLACE = 2
"""Stacks that Ray has for each that can run: the next one is there when a place becomes free, and
a cluster that grows with its load notices the demand."""
MOST_TRIALS = 64
"""Larger stacks gain nothing."""
_USABLE = 0.9
"""The usable share of a device's free memory: allocators leave gaps."""
_MEASURED_STEPS = 3

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
        self._checkpoints: str | None = None
        if options.checkpoints is not None:
            self._checkpoints = CheckpointMirror(options.checkpoints).address
            if "://" not in self._checkpoints:
                make_folder(Path(self._checkpoints))
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
        return max(self._places(options), 1)

    def largest_stacks(
        self, configs: Sequence[TrialConfig], options: RunOptions
    ) -> Callable[[TrialConfig], int] | None:
        """As many trials as fit on a device of the cluster, measured once per shape."""
        if options.stack is not None or torch.device(options.device).type == "cpu":
            return None
        fitting: dict[object, int] = {}
        for config in configs:
            if config.shape() not in fitting:
                order = (config, as_arrays(benchmark_of(config)), own_files(config), options)
                fitting[config.shape()] = self.call(measure_stack, *order, options=options)
        # Earlier plans of trials that are done by now may stay as they are.
        return lambda config: fitting.get(config.shape(), MOST_TRIALS)

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
            # The flag is on this machine, so that no other node's death can take it. If its process
            # dies, Ray starts it again, and those who wait for it continue to wait.
            here = on_node(self.ray.get_runtime_context().get_node_id())
            always = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1}
            flag = self.ray.remote(scheduling_strategy=here, **always)(StopFlag).remote()
            try:
                stacks = Stacks(self, flag, options)
                try:
                    yield from self._run(stacks, queue, options, stop)
                finally:
                    stacks.end()
            finally:
                with suppress(Exception):  # the cluster may be gone
                    self.ray.kill(flag)
                self.disconnect()

    def _run(
        self, stacks: "Stacks", queue: JobQueue, options: RunOptions, stop: StopRequest
    ) -> Iterator[Event]:
        next_count, noted = 0.0, False
        while stop.signal is None:
            if time.monotonic() >= next_count:  # nodes come and go
                places = self._places(options)
                stacks.most = _GIVEN_PER_PLACE * max(places, 1)
                next_count = time.monotonic() + _SECONDS_BETWEEN_COUNTS
                if not places and not noted:
                    noted = True
                    needed = "{num_cpus:g} CPUs and {num_gpus:g} GPUs".format(
                        **self.resources(options)
                    )
                    yield Note("", f"no node has {needed} for a stack; waiting")
            while len(stacks.running) < stacks.most:
                taken = queue.take()
                if taken is None:
                    break
                if isinstance(taken, Work):
                    yield from stacks.start(taken)
                else:
                    yield taken
            if not len(queue) and not stacks.running:
                return
            for stack, event in stacks.listen():
                yield event
                place = self.checkpoints_of(stack.work.job)
                if place is not None and isinstance(event, Finished) and stop.signal is None:
                    with suppress(RemaskError):  # it is stored by now: what stays does no harm
                        CheckpointMirror(place).remove()
        yield from stacks.stop_all()

    def checkpoints_of(self, job: Job) -> str | None:
        """Where all nodes find a job's checkpoints, if anywhere."""
        return None if self._checkpoints is None else f"{self._checkpoints}/{job.name}"

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

    def _places(self, options: RunOptions) -> int:
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
        run = TrialStack(configs, as_benchmark(arrays), device=device).run()
        for _ in zip(range(_MEASURED_STEPS), run, strict=False):
            pass
        return int(module.max_memory_allocated(device) - before)

    with scratch_folder(code):
        return trials_that_fit(peak, module.mem_get_info(device)[0])


def trials_that_fit(needed: Callable[[int], int], free: int) -> int:
    """The largest stack that fits into `free` bytes; `needed` measures a stack of a given size.

    Memory grows linearly with the trials, so two measurements suffice. Raises TooLargeError if one
    trial does not fit.
    """
    one, two = needed(1), needed(2)
    usable = int(free * _USABLE)
    if one > usable:
        raise TooLargeError(
            f"one trial takes {write_bytes(one)} of the device's memory, and {write_bytes(usable)} "
            f"can be used; use a smaller buffer, batch or net"
        )
    per_trial = max(two - one, 1)
    return min((usable - max(one - per_trial, 0)) // per_trial, MOST_TRIALS)
