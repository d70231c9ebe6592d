"""The stacks that a Ray cluster has been given, and what they report."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import remask
from remask.data.benchmark import load_benchmark
from remask.engine.checkpoints import checkpoints_in
from remask.experiments.jobs import Event, Failed, Finished, Lost, Work
from remask.experiments.options import RunOptions
from remask.experiments.ray_node import (
    Arrays,
    Began,
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
from remask.own_code import fingerprints_of

if TYPE_CHECKING:
    from remask.experiments.ray_cluster import Ray

_SECONDS_BETWEEN_LOOKS = 0.1
_SECONDS_TO_SAVE = 60.0
_SECONDS_FOR_LAST_WORDS = 10.0
_LINES_OF_LAST_WORDS = 30
_REPORTS_PER_SECOND = 100
"""Of all stacks together; this process has to keep up with them."""
_ENDED_EARLY = "its task ended before it was trained"


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
class Stack:
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


class Stacks:
    """The stacks that the cluster has."""

    def __init__(self, cluster: "Ray", flag: Any, options: RunOptions) -> None:
        ray, logs = cluster.ray, cluster.logs
        resources = cluster.resources(options)
        # Ray itself retries nothing: the queue does, and counts.
        self._task = ray.remote(num_returns="streaming", max_retries=0, **resources)(train_stack)
        self._ray, self._flag, self._logs = ray, flag, logs
        self._shared = cluster.checkpoints_of
        self._stop_asked = flag.wait.remote()
        self._options = options.model_copy(update={"data": None, "log": (), "logs": logs})
        self._data: dict[str, Any] = {}  # references to arrays in the object store
        self.running: list[Stack] = []
        self.most = 0
        """How many stacks the cluster is to have at once."""

    def start(self, work: Work) -> Iterator[Event]:
        """Give a job to the cluster; yields `Failed` if its data cannot be sent."""
        config, kinds = work.job.configs[0], self._ray.exceptions
        try:
            if config.benchmark not in self._data:
                arrays: Arrays = as_arrays(load_benchmark(config.benchmark))
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
            checkpoints=self._shared(work.job),
            seconds_between_reports=self.most / _REPORTS_PER_SECOND,
        )
        checkpoint = self._ray.put(read_files(checkpoints_in(work.folder).values()))
        messages = self._task.remote(
            order, self._data[config.benchmark], checkpoint, [self._stop_asked]
        )
        self.running.append(Stack(work, messages))

    def listen(self) -> Iterator[tuple[Stack, Event]]:
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

    def _drop(self, stack: Stack) -> None:
        self.running.remove(stack)
        with suppress(Exception):  # the cluster may be gone
            self._ray.cancel(stack.messages, force=True)

    def _next_events(self, stack: Stack) -> Iterator[Event]:
        """The events of the next message of a stack, which is ready."""
        try:
            message = self._ray.get(next(stack.messages))
        except (StopIteration, self._ray.exceptions.RayError) as error:
            self.running.remove(stack)
            if not stack.ended and isinstance(error, StopIteration):
                yield self._lost(stack, _ENDED_EARLY)
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
            case _:
                stack.ended = isinstance(message, Failed)
                yield message

    def _lost(self, stack: Stack, error: str, details: str = "") -> Lost:
        resumes = self._shared(stack.work.job) is not None
        return Lost(stack.work.job.name, error, details, resumes)

    def _cause(self, stack: Stack, error: Exception) -> tuple[str, str]:
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
        there = on_node(began.node)
        read = self._ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=there)(read_logs)
        try:
            text = self._ray.get(read.remote(began.logs, end=True), timeout=_SECONDS_FOR_LAST_WORDS)
        except self._ray.exceptions.RayError:  # the node is gone as well, or busy
            return ""
        # Ray marks with a colon which task a line is of.
        lines = [line for line in text.splitlines() if not line.startswith(":")]
        crash = _find(lines, "Fatal Python error")
        if crash is None:
            return "\n".join(lines[-_LINES_OF_LAST_WORDS:])
        # The threads that did not crash come first, and much else follows.
        current = _find(lines[crash:], "Current thread") or 1
        return "\n".join([lines[crash], *lines[crash + current :]][:_LINES_OF_LAST_WORDS])

    def _log(self, stack: Stack, text: str) -> None:
        if self._logs is None:
            return
        with (self._logs / f"{stack.work.job.name}.log").open("a") as log:
            if not log.tell():
                log.write(f"{stack.work.job.title()}\n")
                log.writelines(f"{config.canonical}\n" for config in stack.work.job.configs)
            log.write(text)


def _find(lines: Sequence[str], text: str) -> int | None:
    return next((number for number, line in enumerate(lines) if text in line), None)


def on_node(node: str) -> Any:
    """The scheduling strategy for a task that must run on this node."""
    strategies = import_module("ray.util.scheduling_strategies")
    return strategies.NodeAffinitySchedulingStrategy(node, soft=False)
