"""Many machines: the jobs of a run as tasks of a Ray cluster, one task per stack.

Ray decides where a task runs. This process hands out the work, shows events, and alone writes the
store.
"""

import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import torch

import remask
from remask.config import TrialConfig
from remask.data.benchmark import load_benchmark
from remask.engine.checkpoints import checkpoints_in
from remask.errors import MissingPackageError, RemaskError
from remask.experiments.checkpoint_mirror import CheckpointMirror, is_address
from remask.experiments.executors import Executor, JobQueue
from remask.experiments.jobs import Event, Failed, Finished, Job, Lost, Note, Work, benchmark_of
from remask.experiments.options import RunOptions
from remask.experiments.ray_node import (
    MOST_TRIALS,
    Arrays,
    Began,
    Files,
    Order,
    Printed,
    last_words,
    measure_stack,
    own_files,
    read_files,
    train_stack,
    write_files,
)
from remask.experiments.train import describe_failure
from remask.files import AnyPath, make_folder
from remask.machine import StopFlag, StopRequest
from remask.own_code import fingerprints_of

_SECONDS_TO_ANSWER = 10.0
_SECONDS_BETWEEN_COUNTS = 1.0
_SECONDS_BETWEEN_LOOKS = 0.1
_SECONDS_TO_SAVE = 60.0
_SECONDS_FOR_LAST_WORDS = 10.0
_LINES_OF_LAST_WORDS = 30
_REPORTS_PER_SECOND = 100
"""Of all stacks together; this process has to keep up with them."""
_GIVEN_PER_PLACE = 2
"""Stacks that Ray has for each that can run: the next one is there when a place becomes free, and
a cluster that grows with its load notices the demand."""
_ENDED_EARLY = "its task ended before it was trained"

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
        self._logs = options.logs
        self._checkpoints = _checkpoint_place(options.checkpoints)
        try:
            self._ray: Any = import_module("ray")
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
                arrays = Arrays.of(benchmark_of(config))
                order = (config, arrays, own_files([config.method, config.net]), options)
                fitting[config.shape()] = self.call(measure_stack, *order, options=options)
        # Earlier plans of trials that are done by now may stay as they are.
        return lambda config: fitting.get(config.shape(), MOST_TRIALS)

    def call(self, function: Callable[..., _T], *args: Any, options: RunOptions) -> _T:
        """Call a function on a node, with the CPUs and GPUs of a stack."""
        self._connect()
        cpus, gpus = self._resources(options)
        task = self._ray.remote(num_cpus=cpus, num_gpus=gpus)(function)
        try:
            answer: _T = self._ray.get(task.remote(*args))
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, RemaskError):
                raise error.cause from None
            raise ClusterError(f"a measurement on a node failed: {error}") from error
        return answer

    def disconnect(self) -> None:
        """Leave the cluster if this executor connected to it, and not its caller."""
        if self._connected_here:
            self._ray.shutdown()
            self._connected_here = False

    def run(self, queue: JobQueue, options: RunOptions, stop: StopRequest) -> Generator[Event]:
        """See `Executor.run`."""
        if self._logs is not None:
            make_folder(self._logs)
        # Ray prints about its workers on standard output, where only results belong.
        with redirect_stdout(sys.stderr):
            self._connect()
            try:
                with self._stop_flag() as flag:
                    stacks = _Stacks(
                        self._ray, self._resources(options), flag, options, self._shared, self._logs
                    )
                    try:
                        yield from self._run(stacks, queue, options, stop)
                    finally:
                        stacks.end()
            finally:
                self.disconnect()

    def _run(
        self, stacks: "_Stacks", queue: JobQueue, options: RunOptions, stop: StopRequest
    ) -> Iterator[Event]:
        next_count, noted = 0.0, False
        while stop.signal is None:
            if time.monotonic() >= next_count:  # nodes come and go
                places = self._places(options)
                stacks.most = _GIVEN_PER_PLACE * max(places, 1)
                next_count = time.monotonic() + _SECONDS_BETWEEN_COUNTS
                if not places and not noted:
                    noted = True
                    cpus, gpus = self._resources(options)
                    yield Note(
                        "", f"no node has {cpus:g} CPUs and {gpus:g} GPUs for a stack; waiting"
                    )
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
                if isinstance(event, Finished) and stop.signal is None:  # it is stored by now
                    self._remove_checkpoints(stack.work.job)
        yield from stacks.stop_all()

    def _shared(self, job: Job) -> str | None:
        """Where all nodes find a job's checkpoints, if anywhere."""
        return None if self._checkpoints is None else f"{self._checkpoints}/{job.name}"

    def _remove_checkpoints(self, job: Job) -> None:
        if (place := self._shared(job)) is None:
            return
        if is_address(place):
            with suppress(RemaskError):  # what stays does no harm
                CheckpointMirror(place).remove()
        else:
            shutil.rmtree(place, ignore_errors=True)

    def _connect(self) -> None:
        if self._ray.is_initialized():
            return
        check_reachable(self._address)
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no reports to Ray's makers
        try:
            self._ray.init(address=self._address, log_to_driver=False, logging_level="ERROR")
        except Exception as error:  # connections, versions and addresses raise many kinds
            place = "a Ray cluster" if self._address is None else f"Ray at {self._address}"
            raise ClusterError(
                f"cannot connect to {place}: {error}. Does it run there, with the same versions of "
                f"Ray and Python as here? If it asks for a token, set RAY_AUTH_MODE=token."
            ) from error
        self._connected_here = True

    @contextmanager
    def _stop_flag(self) -> Iterator[Any]:
        """A flag on the machine of this process, so that no other node's death can take it.

        If its process dies, Ray starts it again, and those who wait for it continue to wait.
        """
        here = _on_node(self._ray.get_runtime_context().get_node_id())
        always = {"max_restarts": -1, "max_task_retries": -1}
        flag = self._ray.remote(num_cpus=0, scheduling_strategy=here, **always)(StopFlag).remote()
        try:
            yield flag
        finally:
            with suppress(Exception):  # the cluster may be gone
                self._ray.kill(flag)

    def _resources(self, options: RunOptions) -> tuple[float, float]:
        """The CPUs and GPUs of a stack."""
        gpus = float(options.device.startswith("cuda")) if self._gpus is None else self._gpus
        return float(options.threads) if self._cpus is None else self._cpus, gpus

    def _places(self, options: RunOptions) -> int:
        """How many stacks the nodes can train at once, whatever else they do."""
        cpus, gpus = self._resources(options)
        nodes = (node["Resources"] for node in self._ray.nodes() if node["Alive"])
        return sum(places_on(node, cpus, gpus) for node in nodes)


@dataclass(eq=False)
class _Stack:
    """A job that the cluster has."""

    work: Work
    messages: Any
    """Ray's generator of references to what the task yields."""
    began: Began | None = None
    ended: bool = False
    """Whether it reported its end."""

    @property
    def where(self) -> str:
        """The name of its node."""
        return "an unknown node" if self.began is None else self.began.host


class _Stacks:
    """The stacks that the cluster has. `shared` is where all nodes find a job's checkpoints."""

    def __init__(
        self,
        ray: Any,
        resources: tuple[float, float],
        flag: Any,
        options: RunOptions,
        shared: Callable[[Job], str | None],
        logs: Path | None,
    ) -> None:
        cpus, gpus = resources
        # Ray itself retries nothing: the queue does, and counts.
        self._task = ray.remote(
            num_returns="streaming", max_retries=0, num_cpus=cpus, num_gpus=gpus
        )(train_stack)
        self._ray, self._flag, self._shared, self._logs = ray, flag, shared, logs
        self._stop_asked = flag.wait.remote()
        self._options = options.model_copy(update={"data": None, "log": (), "logs": logs})
        self._data: dict[str, Any] = {}  # references to arrays in the object store
        self.running: list[_Stack] = []
        self.most = 0
        """How many stacks the cluster is to have at once."""

    def start(self, work: Work) -> Iterator[Event]:
        """Give a job to the cluster; yields `Failed` if its data cannot be sent."""
        config = work.job.configs[0]
        try:
            if config.benchmark not in self._data:
                arrays = Arrays.of(load_benchmark(config.benchmark))
                self._data[config.benchmark] = self._ray.put(arrays)
        except Exception as error:
            yield Failed(work.job.name, self._put_failure(config.benchmark, error))
            return
        data = self._data[config.benchmark]
        order = Order(
            job=work.job,
            options=self._options,
            version=remask.__version__,
            code=own_files([config.method, config.net]),
            checkpoints=self._shared(work.job),
            data=data.hex(),
            seconds_between_reports=self.most / _REPORTS_PER_SECOND,
        )
        checkpoint = self._ray.put(read_files(checkpoints_in(work.folder).values()))
        messages = self._task.remote(order, data, checkpoint, [self._stop_asked])
        self.running.append(_Stack(work, messages))

    def listen(self) -> Iterator[tuple[_Stack, Event]]:
        """The next events of the stacks, or none after a moment."""
        if not self.running:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
            return
        streams = {stack.messages: stack for stack in self.running}
        wait = self._ray.wait
        ready, _ = wait(list(streams), num_returns=1, timeout=_SECONDS_BETWEEN_LOOKS)
        if ready:
            ready, _ = wait(list(streams), num_returns=len(streams), timeout=0)
        for stream in ready:
            for event in self._next_events(streams[stream]):
                yield streams[stream], event

    def stop_all(self) -> Iterator[Event]:
        """Make all stacks save and end; what one could not save is lost."""
        with suppress(self._ray.exceptions.RayError):  # then the time to save runs out
            self._ray.get(self._flag.raise_it.remote(), timeout=_SECONDS_TO_SAVE)
        for stack in list(self.running):
            if stack.began is None:  # it waits for a place and has nothing to save
                self._drop(stack)
        deadline = time.monotonic() + _SECONDS_TO_SAVE
        while self.running and time.monotonic() < deadline:
            for _, event in self.listen():
                if not (isinstance(event, Lost) and event.error == _ENDED_EARLY):
                    yield event
        for stack in list(self.running):
            self._drop(stack)
            error = f"not saved within {_SECONDS_TO_SAVE:g} s, and killed"
            yield Lost(stack.work.job.name, error)

    def end(self) -> None:
        """Leave nothing running."""
        for stack in list(self.running):
            self._drop(stack)

    def _drop(self, stack: _Stack) -> None:
        self.running.remove(stack)
        with suppress(Exception):  # the cluster may be gone
            self._ray.cancel(stack.messages, force=True)

    def _next_events(self, stack: _Stack) -> Iterator[Event]:
        """The events of the next message of a stack, which is ready."""
        job = stack.work.job.name
        try:
            message = self._ray.get(next(stack.messages))
        except StopIteration:
            self.running.remove(stack)
            if not stack.ended:
                yield Lost(job, _ENDED_EARLY, resumes=self._shared(stack.work.job) is not None)
            return
        except self._ray.exceptions.RayError as error:
            self.running.remove(stack)
            if not stack.ended:
                yield self._lost(stack, error)
            return
        match message:
            case Began():
                stack.began = message
                self._log(stack, f"on {message.host}, node {message.node}\n")
            case Printed():
                self._log(stack, message.text)
            case Files():
                nets = self._options.save_nets
                folder = nets if message.kind == "nets" else stack.work.folder
                assert folder is not None, "nets come only if they were asked for"
                write_files(folder, message.files)
            case Failed() if message.may_pass:
                stack.ended = True
                self._log(stack, message.traceback + "\n")
                resumes = self._shared(stack.work.job) is not None
                yield Lost(job, f"{message.error}, on {stack.where}", message.traceback, resumes)
            case Finished():
                stack.ended = True
                # The benchmark's own module was imported here, not on the node.
                own = fingerprints_of([stack.work.job.configs[0].benchmark])
                records = [
                    record.model_copy(update={"own_code": {**own, **record.own_code}})
                    for record in message.records
                ]
                yield replace(message, records=records)
            case _:
                stack.ended = isinstance(message, Failed)
                yield message

    def _lost(self, stack: _Stack, error: Exception) -> Lost:
        """Describe a stack whose process or node died."""
        kinds, began, details = self._ray.exceptions, stack.began, ""
        alive = {node["NodeID"] for node in self._ray.nodes() if node["Alive"]}
        if isinstance(error, kinds.RayTaskError):
            reason = f"its program failed on {stack.where}"
            details = str(error)
        elif isinstance(error, kinds.OutOfMemoryError):
            reason = f"the memory of {stack.where} ran out, and Ray ended the worker process"
        elif isinstance(error, kinds.NodeDiedError) or (began and began.node not in alive):
            reason = f"the node {stack.where} died"
        elif isinstance(error, kinds.WorkerCrashedError):
            reason = f"the worker process on {stack.where} died"
            details = "" if began is None else self._last_words(began)
        else:
            reason = f"the cluster lost it: {str(error).splitlines()[0]}"
        self._log(stack, f"{reason}\n{details}\n")
        resumes = self._shared(stack.work.job) is not None
        return Lost(stack.work.job.name, reason, details, resumes)

    def _last_words(self, began: Began) -> str:
        """The last output of a dead worker process, from the files on its node."""
        there = _on_node(began.node)
        read = self._ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=there)(last_words)
        try:
            text = self._ray.get(read.remote(began.logs), timeout=_SECONDS_FOR_LAST_WORDS)
        except self._ray.exceptions.RayError:  # the node is gone as well, or busy
            return ""
        crash = text.find("Fatal Python error")
        if crash >= 0:  # the threads that did not crash come first, and much else follows
            lines = text[crash:].splitlines()
            if (current := text.find("Current thread", crash)) >= 0:
                lines = [lines[0], *text[current:].splitlines()]
            return "\n".join(lines[:_LINES_OF_LAST_WORDS])
        return "\n".join(text.splitlines()[-_LINES_OF_LAST_WORDS:])

    def _log(self, stack: _Stack, text: str) -> None:
        if self._logs is None:
            return
        with (self._logs / f"{stack.work.job.name}.log").open("a") as log:
            if not log.tell():
                log.write(f"{stack.work.job.title()}\n")
                log.writelines(f"{config.canonical}\n" for config in stack.work.job.configs)
            log.write(text)

    def _put_failure(self, benchmark: str, error: Exception) -> str:
        kinds = self._ray.exceptions
        if isinstance(error, kinds.ObjectStoreFullError | kinds.OutOfDiskError):
            return (
                f"the data of {benchmark} does not fit into the cluster's object store; start Ray "
                f"with a larger --object-store-memory, or with more space on its disk: "
                f"{str(error).splitlines()[0]}"
            )
        return describe_failure(error)


def _on_node(node: str) -> Any:
    strategies = import_module("ray.util.scheduling_strategies")
    return strategies.NodeAffinitySchedulingStrategy(node, soft=False)


def places_on(resources: Mapping[str, float], cpus: float, gpus: float) -> int:
    """How many stacks fit on a node; one that takes part of a GPU cannot have parts of two."""
    places = int(resources.get("CPU", 0.0) / cpus)
    if not gpus:
        return places
    there = resources.get("GPU", 0.0)
    return min(places, int(there) * int(1 / gpus) if gpus < 1 else int(there / gpus))


def check_reachable(address: str | None) -> None:
    """Raise ClusterError unless something listens at the address; Ray itself tries for minutes.

    `local`, or an address that Ray is going to choose, passes.
    """
    source = ""
    if address is None or address == "auto":
        folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
        last = Path(folder) / "ray" / "ray_current_cluster"
        address = os.environ.get("RAY_ADDRESS", "")
        source = ", the address in $RAY_ADDRESS"
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


def _checkpoint_place(checkpoints: str | None) -> str | None:
    """The place for checkpoints, as every node can use it."""
    if checkpoints is None:
        return None
    if is_address(checkpoints):
        CheckpointMirror(checkpoints)  # raises now if a package is missing
        return checkpoints.rstrip("/")
    folder = Path(checkpoints).resolve()  # the nodes work in other folders
    make_folder(folder)
    return str(folder)
