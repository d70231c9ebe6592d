"""Many machines: the jobs of a run as tasks of a Ray cluster, one task per stack.

Ray decides where a task runs, and which nodes there are. This process hands out the work, shows
what happens, and alone writes the store.
"""

import os
import shutil
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import torch

from remask.config import TrialConfig
from remask.durable import AnyPath, make_folder
from remask.errors import MissingPackageError, RemaskError
from remask.runs.checkpoint_mirror import CheckpointMirror, is_address
from remask.runs.data import benchmark_of
from remask.runs.device_memory import MOST_TRIALS
from remask.runs.events import Event, Finished, Note
from remask.runs.executors import Executor
from remask.runs.jobs import Job, Work
from remask.runs.options import RunOptions
from remask.runs.queue import JobQueue
from remask.runs.ray_address import ClusterError, check_reachable
from remask.runs.ray_stacks import ClusterStacks
from remask.runs.ray_task import measure_stack, train_stack
from remask.runs.shipping import Arrays, own_files
from remask.runs.signals import StopRequest
from remask.runs.stop_flag import StopFlag

_SECONDS_BETWEEN_COUNTS = 1.0
"""How often to ask for the size of the cluster: nodes come and go."""
_GIVEN_PER_PLACE = 2
"""How many stacks Ray has for each that can run: the next one is there when a place becomes free,
and a cluster that grows with its load sees that there is more to do."""


_T = TypeVar("_T")


class Ray(Executor):
    """Trains stacks on a Ray cluster, each with so many CPUs and GPUs of a node.

    `address` is that of the cluster; None means $RAY_ADDRESS, else the cluster that this machine
    is in, else a new one on this machine; `local` always means a new one on this machine. `cpus`
    is the number of threads unless given, `gpus` is 1 with a CUDA device, and may be a fraction.
    `tries` is how often a stack is tried whose worker, node or program fails. `checkpoints` is a
    folder that all nodes share, or an address such as `s3://bucket/folder`: a stack whose node
    died goes on from there. `logs` is a folder of this machine for what the stacks print.
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
        # One place that checks them, for Python and for the command line.
        asked = RunOptions(
            on="ray",
            **{"address": address, "cpus": cpus, "gpus": gpus, "tries": tries},
            **{"checkpoints": checkpoints, "logs": logs},
        )
        self.tries = asked.tries
        self._address = asked.address
        self._cpus, self._gpus = asked.cpus, asked.gpus
        self._logs = asked.logs
        self._checkpoints = _reachable_place(asked.checkpoints)
        self._ray = _import_ray()
        self._connected_here = False

    @classmethod
    def of(cls, options: RunOptions) -> "Ray":
        """The executor that these options ask for."""
        return cls(
            options.address,
            cpus=options.cpus,
            gpus=options.gpus,
            tries=options.tries,
            checkpoints=options.checkpoints,
            logs=options.logs,
        )

    def at_once(self, options: RunOptions) -> int:
        """How many stacks have a place in the cluster at this moment."""
        self._connect()
        return max(self._places(options), 1)

    def largest_stacks(
        self, configs: Sequence[TrialConfig], options: RunOptions
    ) -> Callable[[TrialConfig], int] | None:
        """As many trials as fit on a device of the cluster, found once per shape."""
        if options.stack is not None or torch.device(options.device).type == "cpu":
            return None
        fitting: dict[object, int] = {}
        for config in configs:
            if config.shape() not in fitting:
                arrays = Arrays.of(benchmark_of(config))
                order = (config, arrays, own_files([config.method, config.net]), options)
                fitting[config.shape()] = self.call(measure_stack, *order, options=options)
        # What an earlier session has planned of trials that are done by now may stay as it is.
        return lambda config: fitting.get(config.shape(), MOST_TRIALS)

    def call(self, function: Callable[..., _T], *args: Any, options: RunOptions) -> _T:
        """What a function returns on a node, with the CPUs and GPUs of a stack."""
        self._connect()
        cpus, gpus = self._resources(options)
        task = self._ray.remote(num_cpus=cpus, num_gpus=gpus)(function)
        try:
            answer: _T = self._ray.get(task.remote(*args))
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, RemaskError):
                raise error.cause from None
            raise ClusterError(f"what was to be measured on a node failed: {error}") from error
        return answer

    def run(self, queue: JobQueue, options: RunOptions, stop: StopRequest) -> Generator[Event]:
        """See `Executor.run`."""
        if self._logs is not None:
            make_folder(self._logs)
        # Ray reports on its workers on standard output, where only the results belong.
        with redirect_stdout(sys.stderr), self._connection(), self._flag() as flag:
            cpus, gpus = self._resources(options)
            # Ray itself tries nothing again: the queue does, and counts.
            task = self._ray.remote(
                num_returns="streaming", max_retries=0, num_cpus=cpus, num_gpus=gpus
            )(train_stack)
            stacks = ClusterStacks(self._ray, task, flag, options, self._shared, self._logs)
            try:
                yield from self._run(stacks, queue, options, stop)
            finally:
                stacks.end()

    def _run(
        self, stacks: ClusterStacks, queue: JobQueue, options: RunOptions, stop: StopRequest
    ) -> Iterator[Event]:
        next_count, told = 0.0, False
        while stop.signal is None:
            if time.monotonic() >= next_count:
                places = self._places(options)
                stacks.most = _GIVEN_PER_PLACE * max(places, 1)
                next_count = time.monotonic() + _SECONDS_BETWEEN_COUNTS
                if not places and not told:
                    told = True
                    cpus, gpus = self._resources(options)
                    wanted = f"{cpus:g} CPUs and {gpus:g} GPUs"
                    yield Note("", f"no node has {wanted} for a stack; waiting for one that has")
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
                if isinstance(event, Finished) and stop.signal is None:  # by now it is stored
                    self._remove_checkpoints(stack.work.job)
        yield from stacks.stop_all()

    def _shared(self, job: Job) -> str | None:
        """Where all nodes find a job's checkpoints, if anywhere."""
        return None if self._checkpoints is None else f"{self._checkpoints}/{job.name}"

    def _remove_checkpoints(self, job: Job) -> None:
        if (place := self._shared(job)) is None:
            return
        if is_address(place):
            with suppress(RemaskError):  # what stays there does no harm
                CheckpointMirror(place).remove()
        else:
            shutil.rmtree(place, ignore_errors=True)

    @contextmanager
    def _connection(self) -> Iterator[None]:
        self._connect()
        try:
            yield
        finally:
            self.disconnect()

    def disconnect(self) -> None:
        """Leave the cluster, if this executor connected to it and not its caller."""
        if self._connected_here:
            self._ray.shutdown()
            self._connected_here = False

    def _connect(self) -> None:
        if self._ray.is_initialized():
            return
        check_reachable(self._address)
        # Otherwise a cluster that is started here tells its makers that it is used.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            self._ray.init(address=self._address, log_to_driver=False, logging_level="ERROR")
        except Exception as error:  # of the connection, of versions, of addresses: of many kinds
            place = "a Ray cluster" if self._address is None else f"Ray at {self._address}"
            raise ClusterError(
                f"cannot connect to {place}: {error}. Does it run there, with the same versions of "
                f"Ray and Python as here? If it asks for a token, set RAY_AUTH_MODE=token."
            ) from error
        self._connected_here = True

    @contextmanager
    def _flag(self) -> Iterator[Any]:
        """The flag is on the machine of this process, so that the death of a node cannot take it.

        If its own process dies, Ray starts it again, and those who wait for it go on waiting.
        """
        ray = self._ray
        here = import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        always = {"max_restarts": -1, "max_task_retries": -1}
        flag = ray.remote(num_cpus=0, scheduling_strategy=here, **always)(StopFlag).remote()
        try:
            yield flag
        finally:
            with suppress(Exception):  # the cluster may be gone
                ray.kill(flag)

    def _resources(self, options: RunOptions) -> tuple[float, float]:
        """The CPUs and GPUs of a stack."""
        gpus = float(options.device.startswith("cuda")) if self._gpus is None else self._gpus
        return float(options.threads) if self._cpus is None else self._cpus, gpus

    def _places(self, options: RunOptions) -> int:
        """How many stacks the nodes can train at once, whatever else they do."""
        cpus, gpus = self._resources(options)
        nodes = (node["Resources"] for node in self._ray.nodes() if node["Alive"])
        return sum(places_on(node, cpus, gpus) for node in nodes)


def places_on(resources: Mapping[str, float], cpus: float, gpus: float) -> int:
    """How many stacks fit on a node; one that takes part of a GPU cannot have parts of two."""
    places = int(resources.get("CPU", 0.0) / cpus)
    if gpus:
        there = resources.get("GPU", 0.0)
        on_gpus = int(there) * int(1 / gpus) if gpus < 1 else int(there / gpus)
        return min(places, on_gpus)
    return places


def _import_ray() -> Any:
    try:
        return import_module("ray")
    except ImportError:
        raise MissingPackageError(
            "running on a cluster needs Ray, which is not installed: pip install ray"
        ) from None


def _reachable_place(checkpoints: str | None) -> str | None:
    """The place for checkpoints, as every node can be told of it."""
    if checkpoints is None:
        return None
    if is_address(checkpoints):
        CheckpointMirror(checkpoints)  # says now what is not installed
        return checkpoints.rstrip("/")
    folder = Path(checkpoints).resolve()  # the nodes work in other folders
    make_folder(folder)
    return str(folder)
