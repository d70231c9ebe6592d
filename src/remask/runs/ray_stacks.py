"""The stacks that a Ray cluster has, as the process that gave them to it sees them."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import remask
from remask.benchmarks import load_benchmark
from remask.engine.checkpoints import checkpoints_in
from remask.own_code import fingerprints_of
from remask.runs.events import Event, Failed, Finished, Lost
from remask.runs.jobs import Job, Work
from remask.runs.options import RunOptions
from remask.runs.ray_task import Began, Files, Order, Printed, last_words
from remask.runs.shipping import Arrays, own_files, read_files, write_files
from remask.runs.train import describe_failure

_SECONDS_BETWEEN_LOOKS = 0.1
_REPORTS_PER_SECOND = 100
"""Of all stacks together, about; this process has to keep up with them."""
_SECONDS_TO_SAVE = 60.0
"""How long a stack that was asked to stop may take to save."""
_SECONDS_FOR_LAST_WORDS = 10.0
_LINES_OF_LAST_WORDS = 30
_ENDED_EARLY = "its task ended before it was trained"


@dataclass(eq=False)
class Stack:
    """A job that the cluster has."""

    work: Work
    messages: Any
    """Ray's generator of references to what the task yields."""
    began: Began | None = None
    ended: bool = False
    """Whether it has said how it ended."""

    @property
    def where(self) -> str:
        """The name of its node, for people."""
        return "an unknown node" if self.began is None else self.began.host


class ClusterStacks:
    """Gives stacks to the cluster and hears what becomes of them.

    `task` is `train_stack` as Ray has it, with its resources; `flag` an actor, `StopFlag`.
    `shared` says where all nodes find a job's checkpoints, if anywhere; `logs` is a folder here.
    """

    def __init__(
        self,
        ray: Any,
        task: Any,
        flag: Any,
        options: RunOptions,
        shared: Callable[[Job], str | None],
        logs: Path | None,
    ) -> None:
        self._ray = ray
        self._task = task
        self._flag = flag
        self._stop_asked = flag.wait.remote()
        self._options = options.model_copy(update={"data": None, "log": (), "logs": logs})
        self._nets = options.save_nets
        self._shared = shared
        self._logs = logs
        self._data: dict[str, Any] = {}  # references to arrays in the object store, by benchmark
        self.running: list[Stack] = []
        self.most = 0
        """How many stacks the cluster is to have at once."""

    def start(self, work: Work) -> Iterator[Event]:
        """Give a job to the cluster; yields `Failed` if its data is not to be had."""
        config = work.job.configs[0]
        try:
            data = self._put(config.benchmark)
        except Exception as error:
            yield Failed(work.job.name, _put_failure(self._ray, config.benchmark, error))
            return
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
        self.running.append(Stack(work, messages))

    def listen(self) -> Iterator[tuple[Stack, Event]]:
        """What the stacks have to say, or nothing after a moment."""
        if not self.running:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
            return
        streams = {stack.messages: stack for stack in self.running}
        wait = self._ray.wait
        ready, _ = wait(list(streams), num_returns=1, timeout=_SECONDS_BETWEEN_LOOKS)
        if ready:
            ready, _ = wait(list(streams), num_returns=len(streams), timeout=0)
        for stream in ready:
            stack = streams[stream]
            for event in self._hear(stack):
                yield stack, event

    def stop_all(self) -> Iterator[Event]:
        """Have all stacks save and end; what one could not save is lost."""
        with suppress(self._ray.exceptions.RayError):  # then the time to save runs out
            self._ray.get(self._flag.raise_it.remote(), timeout=_SECONDS_TO_SAVE)
        for stack in list(self.running):
            if stack.began is None:  # it waits for a place, and has nothing to save
                self._drop(stack)
        deadline = time.monotonic() + _SECONDS_TO_SAVE
        while self.running and time.monotonic() < deadline:
            for _, event in self.listen():
                if not (isinstance(event, Lost) and event.error == _ENDED_EARLY):
                    yield event
        for stack in list(self.running):
            self._drop(stack)
            yield Lost(stack.work.job.name, f"not done within {_SECONDS_TO_SAVE:g} s, and ended")

    def end(self) -> None:
        """Leave nothing running."""
        for stack in list(self.running):
            self._drop(stack)

    def _drop(self, stack: Stack) -> None:
        self.running.remove(stack)
        with suppress(Exception):  # the cluster may be gone
            self._ray.cancel(stack.messages, force=True)

    def _put(self, benchmark: str) -> Any:
        """Put a benchmark's data into the object store, once."""
        if benchmark not in self._data:
            self._data[benchmark] = self._ray.put(Arrays.of(load_benchmark(benchmark)))
        return self._data[benchmark]

    def _hear(self, stack: Stack) -> Iterator[Event]:
        """The next thing that a stack has to say, which is there."""
        job = stack.work.job.name
        try:
            message = self._ray.get(next(stack.messages))
        except StopIteration:
            self.running.remove(stack)
            if not stack.ended:
                yield Lost(job, _ENDED_EARLY, resumes=self._goes_on(stack))
            return
        except self._ray.exceptions.RayError as error:
            self.running.remove(stack)
            if not stack.ended:
                yield self._lost(stack, error)
            return
        if isinstance(message, Began):
            stack.began = message
            self._log(stack, f"on {message.host}, node {message.node}\n")
        elif isinstance(message, Printed):
            self._log(stack, message.text)
        elif isinstance(message, Files):
            folder = self._nets if message.kind == "nets" else stack.work.folder
            assert folder is not None, "nets come only if they were asked for"
            write_files(folder, message.files)
        elif isinstance(message, Failed) and message.may_pass:
            stack.ended = True
            self._log(stack, message.traceback + "\n")
            reason = f"{message.error}, on {stack.where}"
            yield Lost(job, reason, message.traceback, self._goes_on(stack))
        elif isinstance(message, Finished):
            stack.ended = True
            # Its own module was imported here, and not on the node.
            own = fingerprints_of([stack.work.job.configs[0].benchmark])
            records = [
                record.model_copy(update={"own_code": {**own, **record.own_code}})
                for record in message.records
            ]
            yield replace(message, records=records)
        else:
            stack.ended = isinstance(message, Failed)
            yield message

    def _lost(self, stack: Stack, error: Exception) -> Lost:
        """What is to be said of a stack whose process died, or whose node did."""
        known = self._ray.exceptions
        details = ""
        if isinstance(error, known.RayTaskError):
            reason = f"its program failed on {stack.where}"
            details = str(error)
        elif isinstance(error, known.OutOfMemoryError):
            reason = f"the memory of {stack.where} ran out, and Ray ended the worker process"
        elif isinstance(error, known.NodeDiedError) or not self._is_alive(stack):
            reason = f"the node {stack.where} died"
        elif isinstance(error, known.WorkerCrashedError):
            reason = f"the worker process on {stack.where} died"
            details = self._last_words(stack)
        else:
            reason = f"the cluster lost it: {str(error).splitlines()[0]}"
        self._log(stack, f"{reason}\n{details}\n")
        return Lost(stack.work.job.name, reason, details, self._goes_on(stack))

    def _is_alive(self, stack: Stack) -> bool:
        alive = {node["NodeID"] for node in self._ray.nodes() if node["Alive"]}
        return stack.began is None or stack.began.node in alive

    def _last_words(self, stack: Stack) -> str:
        """The end of what a dead worker process has printed, from the files on its node."""
        if stack.began is None:
            return ""
        there = import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy(
            stack.began.node, soft=False
        )
        read = self._ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=there)(last_words)
        words = read.remote(stack.began.logs)
        try:
            text = self._ray.get(words, timeout=_SECONDS_FOR_LAST_WORDS)
        except self._ray.exceptions.RayError:  # the node is gone as well, or busy
            return ""
        # A crash of the interpreter says first where it was, and then much else.
        crash = text.find("Fatal Python error")
        if crash >= 0:
            return "\n".join(text[crash:].splitlines()[:_LINES_OF_LAST_WORDS])
        return "\n".join(text.splitlines()[-_LINES_OF_LAST_WORDS:])

    def _goes_on(self, stack: Stack) -> bool:
        return self._shared(stack.work.job) is not None

    def _log(self, stack: Stack, text: str) -> None:
        if self._logs is None:
            return
        path = self._logs / f"{stack.work.job.name}.log"
        with path.open("a") as log:
            if not log.tell():
                log.write(f"{stack.work.job.title()}\n")
                log.writelines(f"{config.canonical}\n" for config in stack.work.job.configs)
            log.write(text)


def _put_failure(ray: Any, benchmark: str, error: Exception) -> str:
    known = ray.exceptions
    if isinstance(error, known.ObjectStoreFullError | known.OutOfDiskError):
        return (
            f"the data of {benchmark} does not fit into the cluster's object store; start Ray with "
            f"a larger --object-store-memory, or with more space on its disk: "
            f"{str(error).splitlines()[0]}"
        )
    return describe_failure(error)
