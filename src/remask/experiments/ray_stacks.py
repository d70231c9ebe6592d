"""The stacks that a Ray cluster has been given, and what they report."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import remask
from remask.data.benchmark import load_benchmark
from remask.engine.checkpoints import checkpoints_in
from remask.errors import RemaskError
from remask.experiments.executors import SECONDS_BETWEEN_LOOKS, SECONDS_TO_SAVE, Pool
from remask.experiments.jobs import Event, Failed, Finished, Lost, Note, Work
from remask.experiments.options import RunOptions
from remask.experiments.ray_node import (
    Began,
    CheckpointMirror,
    Files,
    Order,
    Printed,
    as_arrays,
    own_files,
    read_files,
    read_logs,
    train_stack,
    write_files,
)
from remask.experiments.train import describe_failure
from remask.machine import StopRequest
from remask.own_code import fingerprints_of

if TYPE_CHECKING:
    from remask.experiments.ray_cluster import Ray

_SECONDS_BETWEEN_COUNTS = 1.0
_SECONDS_FOR_LAST_WORDS = 10.0
_LINES_OF_LAST_WORDS = 30
_REPORTS_PER_SECOND = 100
"""Of all stacks together; this process has to keep up with them."""
_GIVEN_PER_PLACE = 2
"""Stacks that Ray has for each that can run: the next one is there when a place becomes free, and
a cluster that grows with its load notices the demand."""


class StopFlag:
    """A flag that all nodes of a cluster can wait for; the body of a Ray actor."""

    def __init__(self) -> None:
        self._raised = asyncio.Event()

    async def wait(self) -> None:
        """Return when the flag is raised."""
        await self._raised.wait()

    async def raise_it(self) -> None:
        """Release all who wait."""
        self._raised.set()


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


class Stacks(Pool):
    """The stacks that the cluster has."""

    def __init__(self, cluster: "Ray", options: RunOptions, stop: StopRequest) -> None:
        super().__init__(stop)
        self._ray, self._cluster, self._logs = cluster.ray, cluster, cluster.logs
        # The flag is on this machine, so that no other node's death can take it. If its process
        # dies, Ray starts it again, and those who wait for it continue to wait.
        here = _on_node(self._ray.get_runtime_context().get_node_id())
        always = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1}
        self._flag = self._ray.remote(scheduling_strategy=here, **always)(StopFlag).remote()
        self._stop_asked = self._flag.wait.remote()
        self._has_asked = False
        # Ray itself retries nothing: the queue does, and counts.
        how = {"num_returns": "streaming", "max_retries": 0, **cluster.resources(options)}
        self._task = self._ray.remote(**how)(train_stack)
        self._options = options.model_copy(update={"data": None, "log": (), "logs": self._logs})
        self._data: dict[str, Any] = {}  # references to arrays in the object store
        self._stacks: list[_Stack] = []
        self._places = 0
        self._next_count = 0.0
        self._noted_none = False

    def running(self) -> list[Work]:
        """The jobs that the cluster has."""
        return [stack.work for stack in self._stacks]

    def has_room(self) -> bool:
        """Whether the cluster is to have another one."""
        if time.monotonic() >= self._next_count:  # nodes come and go
            self._places = self._cluster.places(self._options)
            self._next_count = time.monotonic() + _SECONDS_BETWEEN_COUNTS
        return len(self._stacks) < self._most()

    def _most(self) -> int:
        """How many stacks the cluster is to have at once."""
        return _GIVEN_PER_PLACE * max(self._places, 1)

    def start(self, work: Work) -> Iterator[Event]:
        """See `Pool.start`."""
        config, kinds = work.job.configs[0], self._ray.exceptions
        if not self._places and not self._noted_none:
            self._noted_none = True
            text = "no node has {num_cpus:g} CPUs and {num_gpus:g} GPUs for a stack; waiting"
            yield Note("", text.format(**self._cluster.resources(self._options)))
        try:
            if config.benchmark not in self._data:
                arrays = as_arrays(load_benchmark(config.benchmark))
                self._data[config.benchmark] = self._ray.put(arrays)
        except Exception as error:
            reason = describe_failure(error)
            if isinstance(error, kinds.ObjectStoreFullError | kinds.OutOfDiskError):
                reason = (
                    f"the data of {config.benchmark} does not fit into the cluster's object store; "
                    f"start Ray with a larger --object-store-memory, or with more space on its "
                    f"disk: {str(error).splitlines()[0]}"
                )
            yield Failed(work.job.name, reason)
            return
        order = Order(
            job=work.job,
            options=self._options,
            version=remask.__version__,
            code=own_files(config),
            checkpoints=self._shared(work),
            seconds_between_reports=max(self._most() / _REPORTS_PER_SECOND, 0.25),
        )
        checkpoint = self._ray.put(read_files(checkpoints_in(work.folder).values()))
        data = self._data[config.benchmark]
        messages = self._task.remote(order, data, checkpoint, [self._stop_asked])
        self._stacks.append(_Stack(work, messages))

    def next_events(self) -> Iterator[Event]:
        """See `Pool.next_events`."""
        if not self._stacks:
            time.sleep(SECONDS_BETWEEN_LOOKS)
            return
        streams = {stack.messages: stack for stack in self._stacks}
        wait = self._ray.wait
        ready, _ = wait(list(streams), num_returns=1, timeout=SECONDS_BETWEEN_LOOKS)
        if ready:
            ready, _ = wait(list(streams), num_returns=len(streams), timeout=0)
        for stream in ready:
            yield from self._next_events(streams[stream])

    def ask_to_stop(self) -> None:
        """See `Pool.ask_to_stop`."""
        if self._has_asked:
            return
        self._has_asked = True
        with suppress(self._ray.exceptions.RayError):  # then the time to save runs out
            self._ray.get(self._flag.raise_it.remote(), timeout=SECONDS_TO_SAVE)
        for stack in list(self._stacks):
            if stack.began is None:  # it waits for a place and has nothing to save
                self._drop(stack)

    def end(self) -> None:
        """See `Pool.end`."""
        for stack in list(self._stacks):
            self._drop(stack)
        with suppress(Exception):  # the cluster may be gone
            self._ray.kill(self._flag)

    def _drop(self, stack: _Stack) -> None:
        self._stacks.remove(stack)
        with suppress(Exception):
            self._ray.cancel(stack.messages, force=True)

    def _shared(self, work: Work) -> str | None:
        """Where all nodes find the checkpoints of a job, if anywhere."""
        place = self._cluster.checkpoints
        return None if place is None else f"{place}/{work.job.name}"

    def _next_events(self, stack: _Stack) -> Iterator[Event]:
        """The events of the next message of a stack, which is ready."""
        try:
            message = self._ray.get(next(stack.messages))
        except (StopIteration, self._ray.exceptions.RayError) as error:
            self._stacks.remove(stack)
            if isinstance(error, StopIteration):
                if not stack.ended and self.stop.signal is None:
                    yield self._lost(stack, "its task ended before it was trained")
            elif not stack.ended:
                yield self._lost(stack, *self._cause(stack, error))
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
                yield self._lost(stack, f"{message.error}, on {stack.where}", message.traceback)
            case Finished():
                stack.ended = True
                # The benchmark's own module was imported here, not on the node.
                own = fingerprints_of([stack.work.job.configs[0].benchmark])
                records = [
                    record.model_copy(update={"own_code": own | record.own_code})
                    for record in message.records
                ]
                yield replace(message, records=records)
                place = self._shared(stack.work)
                if place is not None and self.stop.signal is None:
                    with suppress(RemaskError):  # it is stored by now: what stays does no harm
                        CheckpointMirror(place).remove()
            case _:
                stack.ended = isinstance(message, Failed)
                yield message

    def _lost(self, stack: _Stack, error: str, details: str = "") -> Lost:
        return Lost(stack.work.job.name, error, details, self._shared(stack.work) is not None)

    def _cause(self, stack: _Stack, error: Exception) -> tuple[str, str]:
        """Why the process or node of a stack died, and details."""
        kinds, began, details = self._ray.exceptions, stack.began, ""
        alive = {node["NodeID"] for node in self._ray.nodes() if node["Alive"]}
        if isinstance(error, kinds.RayTaskError):
            reason, details = f"its program failed on {stack.where}", str(error)
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
        return reason, details

    def _last_words(self, began: Began) -> str:
        """The last output of a dead worker process, from the files on its node."""
        there = _on_node(began.node)
        read = self._ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=there)(read_logs)
        try:
            text = self._ray.get(read.remote(began.logs, end=True), timeout=_SECONDS_FOR_LAST_WORDS)
        except self._ray.exceptions.RayError:  # the node is gone as well, or busy
            return ""
        # Ray marks with a colon which task a line is of. The thread that crashed comes last.
        lines = [line for line in text.splitlines() if not line.startswith(":")]
        crash = next((n for n, line in enumerate(lines) if "Fatal Python error" in line), None)
        if crash is None:
            return "\n".join(lines[-_LINES_OF_LAST_WORDS:])
        threads = (n for n, line in enumerate(lines) if n > crash and "Current thread" in line)
        return "\n".join([lines[crash], *lines[next(threads, crash + 1) :]][:_LINES_OF_LAST_WORDS])

    def _log(self, stack: _Stack, text: str) -> None:
        if self._logs is None:
            return
        with (self._logs / f"{stack.work.job.name}.log").open("a") as log:
            if not log.tell():
                log.write(f"{stack.work.job.title()}\n")
                log.writelines(f"{config.canonical}\n" for config in stack.work.job.configs)
            log.write(text)


def _on_node(node: str) -> Any:
    """The scheduling strategy for a task that must run on this node."""
    strategies = import_module("ray.util.scheduling_strategies")
    return strategies.NodeAffinitySchedulingStrategy(node, soft=False)
