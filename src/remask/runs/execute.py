"""Run one job in this process: restore, train, save by the clock and at task ends, report."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

import torch

from remask.asking import SettingsError
from remask.benchmarks import Benchmark, load_benchmark
from remask.config import TrialConfig
from remask.engine import Position, TrialStack, check_predictor
from remask.engine.checkpoints import CheckpointFolder
from remask.errors import Stopped
from remask.locks import Lock
from remask.own_code import fingerprints_of
from remask.runs.events import Event, Finished, Note, Progress
from remask.runs.jobs import Job
from remask.runs.nets import save_nets
from remask.runs.signals import StopRequest

_SECONDS_BETWEEN_REPORTS = 0.25
_SECONDS_TO_WAIT_FOR_AN_ORPHAN = 30.0
_LARGEST_SHARE = 0.02
"""The share of the run's time that checkpoints at task ends may take."""


@dataclass(frozen=True)
class Options:
    """How to run a job; nothing here changes its results."""

    device: str = "cpu"
    threads: int = 1
    checkpoint_seconds: float = 60.0
    nets: Path | None = None
    """The folder to save the nets of finished trials in."""


def execute(
    job: Job,
    folder: Path,
    options: Options,
    stop: StopRequest,
) -> Iterator[Event]:
    """Run a job from its latest checkpoint in `folder`, if there is one, to the end.

    Yields `Progress` on the way and `Finished` at the end. If asked to stop, saves and raises
    `Stopped`.
    """
    # A worker whose parent was killed may live for another moment: wait for it to let go.
    with Lock(folder / "lock", timeout=_SECONDS_TO_WAIT_FOR_AN_ORPHAN):
        yield from _execute(job, folder, options, stop)


def _execute(job: Job, folder: Path, options: Options, stop: StopRequest) -> Iterator[Event]:
    torch.set_num_threads(options.threads)
    check_device(options.device)
    stack = TrialStack(job.configs, benchmark_of(job.configs[0]), device=options.device)
    if options.nets is not None:
        check_predictor(stack.method)  # before hours are spent
    saver = _Saver(stack, CheckpointFolder(folder, identity=job.name), options.checkpoint_seconds)
    for warning in saver.restore():
        yield Note(job.name, warning)
    yield _progress(job, stack)
    next_report = time.monotonic() + _SECONDS_BETWEEN_REPORTS
    learnt = stack.position.task
    for position in stack.run():
        task_ended, learnt = position.task > learnt, position.task
        if stop.signal is not None:
            saver.save()
            raise Stopped(stop.signal)
        saver.save_if_due(task_ended=task_ended)
        if task_ended or time.monotonic() >= next_report:
            yield _progress(job, stack)
            next_report = time.monotonic() + _SECONDS_BETWEEN_REPORTS
    if options.nets is not None:
        save_nets(stack, options.nets)
    yield Finished(job.name, stack.results(), saver.started, saver.seconds(), saver.own_code)


def benchmark_of(config: TrialConfig) -> Benchmark:
    """The benchmark of a trial, with its classes dealt as the trial wants them."""
    return _load(config.benchmark, config.tasks, config.class_order, config.limit)


@lru_cache(maxsize=1)  # the jobs of a process mostly have one benchmark, and loading checks it all
def _load(
    name: str, tasks: int | None, class_order: int | tuple[int, ...] | None, limit: int | None
) -> Benchmark:
    return load_benchmark(name, tasks=tasks, class_order=class_order, limit=limit)


def check_device(name: str) -> None:
    """Refuse a device that torch does not know or cannot reach."""
    try:
        torch.empty(1, device=name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise SettingsError(f"the device {name!r} cannot be used: {reason}") from None


class _Saver:
    """Saves a stack by the clock and at task ends, and keeps the time over all sittings."""

    def __init__(
        self, stack: TrialStack, checkpoints: CheckpointFolder, seconds_between: float
    ) -> None:
        self.started = datetime.now(UTC).isoformat(timespec="seconds")
        config = stack.configs[0]
        self.own_code = fingerprints_of([config.benchmark, config.method, config.net])
        self._stack = stack
        self._checkpoints = checkpoints
        self._seconds_between = seconds_between
        self._seconds_before = 0.0  # in earlier sittings
        self._sat_down = self._last_saved = time.monotonic()
        self._last_cost = 0.0

    def seconds(self) -> float:
        """How long the stack has been running, over all sittings."""
        return self._seconds_before + time.monotonic() - self._sat_down

    def restore(self) -> tuple[str, ...]:
        """Go to the latest good checkpoint, if there is one; returns warnings of damaged ones."""
        saved = self._checkpoints.load(self._stack.state())
        if saved is None:
            return ()
        self._stack.restore(saved.tensors, Position.read(saved.position))
        self.started = str(saved.extra["started"])
        # What is half of one version and half of another is not of this one.
        begun_with = saved.extra.get("own_code")
        known = begun_with if isinstance(begun_with, dict) else {}
        self.own_code = {module: str(fingerprint) for module, fingerprint in known.items()}
        self._seconds_before = float(str(saved.extra["seconds"]))
        return saved.warnings

    def save_if_due(self, *, task_ended: bool) -> None:
        """Save if the time has come, or at a task's end if it costs little beside the task."""
        waited = time.monotonic() - self._last_saved
        worth_it = task_ended and self._last_cost <= _LARGEST_SHARE * waited
        if worth_it or waited >= self._seconds_between:
            self.save()

    def save(self) -> None:
        """Save now."""
        began = time.monotonic()
        self._checkpoints.save(
            self._stack.state(),
            self._stack.position._asdict(),
            {"started": self.started, "seconds": self.seconds(), "own_code": {**self.own_code}},
        )
        self._last_saved = time.monotonic()
        self._last_cost = self._last_saved - began


def _progress(job: Job, stack: TrialStack) -> Progress:
    return Progress(
        job=job.name,
        task=min(stack.position.task + 1, len(stack.tasks)),
        tasks=len(stack.tasks),
        steps_done=stack.steps_done,
        total_steps=stack.total_steps,
        accuracy=stack.running_accuracy(),
    )
