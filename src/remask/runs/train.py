"""Train one job: restore, train, save by the clock and at task ends, say how far it is."""

import re
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

import torch

from remask.benchmarks import Benchmark
from remask.config import TrialConfig
from remask.durable import AnyPath
from remask.engine import Position, TrialStack, check_predictor, save_net
from remask.engine.checkpoints import CheckpointFolder
from remask.engine.loss_log import LOG, LossLog
from remask.errors import RemaskError, SettingsError
from remask.locks import Lock, LockHeldError
from remask.machine import lacks_memory
from remask.own_code import fingerprints_of
from remask.provenance import provenance
from remask.record import TrialRecord
from remask.runs.cost import training_flops
from remask.runs.data import benchmark_of
from remask.runs.events import Advanced, Event, Failed, Finished, Logged, Note
from remask.runs.options import RunOptions
from remask.runs.plans import Job
from remask.runs.signals import StopRequest

_SECONDS_BETWEEN_REPORTS = 0.25
_SECONDS_TO_WAIT_FOR_AN_ORPHAN = 30.0
_LARGEST_SHARE = 0.02
"""The share of the run's time that checkpoints at task ends may take."""
_DIGITS_OF_HASH = 12
_POINTS_AT_ONCE = 50


def run_job(
    job: Job,
    folder: AnyPath | None,
    options: RunOptions,
    stop: StopRequest,
    *,
    benchmark: Benchmark | None = None,
    after_save: Callable[[], None] | None = None,
) -> Iterator[Event]:
    """Train a job from its latest checkpoint in `folder`, if there is one, to the end.

    Yields `Advanced` on the way, and `Finished` or `Failed` at the end; neither if it was asked to
    stop: then it is saved. Without a folder there are no checkpoints. The `benchmark`, if it is not
    given, is loaded; `after_save` is called when a checkpoint is in the folder.
    """
    folder = None if folder is None else Path(folder)
    # A worker whose parent was killed may live for another moment: wait for it to let go.
    seconds = _SECONDS_TO_WAIT_FOR_AN_ORPHAN
    threads = torch.get_num_threads()  # the caller's own
    try:
        with nullcontext() if folder is None else Lock(folder / "lock", timeout=seconds):
            stack = _stack(job, options, benchmark)
            checkpoints = None if folder is None else CheckpointFolder(folder, identity=job.name)
            saver = _Saver(stack, checkpoints, options.checkpoint_seconds, after_save)
            yield from _train(job, stack, saver, options, stop)
    except Exception as error:
        yield _failed(job, error)
    finally:
        torch.set_num_threads(threads)


def _failed(job: Job, error: Exception) -> Failed:
    # A disk, or the lock of a process that is about to die, may be in another state by then.
    may_pass = not isinstance(error, RemaskError) or isinstance(error, OSError | LockHeldError)
    place = "".join(traceback.format_exception(error)).rstrip() if may_pass else ""
    return Failed(job.name, describe_failure(error), place, may_pass)


def describe_failure(error: Exception) -> str:
    """The message alone for a user's mistake; the place in the code as well for anything else."""
    if isinstance(error, RemaskError):
        return str(error)
    if lacks_memory(error):
        return "there is not enough memory; take a smaller buffer or --stack, or fewer --workers"
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} (at {place.filename}:{place.lineno})"


def _stack(job: Job, options: RunOptions, benchmark: Benchmark | None) -> TrialStack:
    torch.set_num_threads(options.threads)
    check_device(options.device)
    benchmark = benchmark_of(job.configs[0]) if benchmark is None else benchmark
    log = None if options.log_every is None else LossLog(options.log_every)
    stack = TrialStack(job.configs, benchmark, device=options.device, log=log)
    if options.save_nets is not None:
        check_predictor(stack.method)  # before hours are spent
    return stack


def _train(
    job: Job, stack: TrialStack, saver: "_Saver", options: RunOptions, stop: StopRequest
) -> Iterator[Event]:
    for warning in saver.restore():
        yield Note(job.name, warning)
    yield _advanced(job, stack)
    news = _News(job, stack)
    next_report = time.monotonic() + _SECONDS_BETWEEN_REPORTS
    learnt = stack.position.task
    for position in stack.run():
        task_ended, learnt = position.task > learnt, position.task
        if stop.signal is not None:
            saver.save()
            return
        saver.save_if_due(task_ended=task_ended)
        if task_ended or time.monotonic() >= next_report:
            yield _advanced(job, stack)
            if options.log_every is not None:
                yield from news.since_last()
            next_report = time.monotonic() + _SECONDS_BETWEEN_REPORTS
    if options.log_every is not None:
        yield from news.since_last()
    if options.save_nets is not None:
        _save_nets(stack, options.save_nets)
    yield Finished(job.name, _records(stack, saver, options.device))


def _records(stack: TrialStack, saver: "_Saver", device: str) -> list[TrialRecord]:
    """The records of a finished stack, with the time of all its sessions."""
    machine = provenance()["machine"]
    if torch.device(device).type == "cuda":
        machine = {**machine, "device": torch.cuda.get_device_name(device)}
    known = {
        "started": datetime.fromisoformat(saver.started),
        "seconds": saver.seconds() / len(stack.configs),
        "own_code": saver.own_code,
        "flops": training_flops(stack),
        "machine": machine,
    }
    return [record.model_copy(update=known) for record in stack.results()]


def check_device(name: str) -> None:
    """Refuse a device that torch does not know or cannot reach."""
    try:
        torch.empty(1, device=name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise SettingsError(f"the device {name!r} cannot be used: {reason}") from None


class _Saver:
    """Saves a stack by the clock and at task ends, and keeps the time over all sessions."""

    def __init__(
        self,
        stack: TrialStack,
        checkpoints: CheckpointFolder | None,
        seconds_between: float,
        after_save: Callable[[], None] | None,
    ) -> None:
        self.started = datetime.now(UTC).isoformat(timespec="seconds")
        config = stack.configs[0]
        self.own_code = fingerprints_of([config.benchmark, config.method, config.net])
        self._stack = stack
        self._checkpoints = checkpoints
        self._seconds_between = seconds_between
        self._after_save = after_save
        self._seconds_before = 0.0  # in earlier sessions
        self._began = self._last_saved = time.monotonic()
        self._last_cost = 0.0

    def seconds(self) -> float:
        """How long the stack has been running, over all sessions."""
        return self._seconds_before + time.monotonic() - self._began

    def restore(self) -> tuple[str, ...]:
        """Go to the latest good checkpoint, if there is one; returns warnings of damaged ones."""
        if self._checkpoints is None:
            return ()
        # It may have been saved with or without what is logged.
        unlogged = {f"{LOG}{name}": tensor for name, tensor in LossLog().state().items()}
        saved = self._checkpoints.load(
            unlogged | self._stack.state(), growing=(LOG,), optional=(LOG,)
        )
        if saved is None:
            return ()
        self._stack.restore(saved.tensors, Position(**saved.position))
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
        """Save now, if there is a place for it."""
        if self._checkpoints is None:
            return
        began = time.monotonic()
        self._checkpoints.save(
            self._stack.state(),
            self._stack.position._asdict(),
            {"started": self.started, "seconds": self.seconds(), "own_code": {**self.own_code}},
        )
        if self._after_save is not None:
            self._after_save()
        self._last_saved = time.monotonic()
        self._last_cost = self._last_saved - began


class _News:
    """Reports what a stack has shown since the last report, from its very beginning.

    After a restart that begins with what was reported before: nobody knows what of it arrived.
    """

    def __init__(self, job: Job, stack: TrialStack) -> None:
        self._job, self._stack = job, stack
        self._points = self._tasks = 0

    def since_last(self) -> Iterator[Logged]:
        points, tasks = self._stack.loss_points(self._points), self._stack.task_points(self._tasks)
        self._points += len(points)
        self._tasks += len(tasks)
        names, trials = self._stack.loss_names, [config.hash for config in self._job.configs]
        for first in range(0, len(points), _POINTS_AT_ONCE):
            some = points[first : first + _POINTS_AT_ONCE]
            plain = [(step, task, values.tolist()) for step, task, values in some]
            yield Logged(self._job.name, trials, names, plain, [])
        if tasks:
            yield Logged(self._job.name, trials, names, [], tasks)


def _advanced(job: Job, stack: TrialStack) -> Advanced:
    return Advanced(
        job=job.name,
        task=min(stack.position.task + 1, len(stack.tasks)),
        tasks=len(stack.tasks),
        steps_done=stack.steps_done,
        total_steps=stack.total_steps,
        accuracy=stack.running_accuracy(),
    )


def net_path(folder: AnyPath, config: TrialConfig) -> Path:
    """Where a trial's net is kept: this with .safetensors and with .json."""
    method = re.sub(r"[^\w.-]", ".", config.method)
    mask = config.mask if isinstance(config.mask, str | None) else f"{config.mask:g}"
    mask = "" if mask is None else f"_mask{mask}"
    digits = config.hash[:_DIGITS_OF_HASH]
    return Path(folder) / f"{method}{mask}_buffer{config.buffer}_seed{config.seed}_{digits}"


def _save_nets(stack: TrialStack, folder: AnyPath) -> None:
    """Save the nets of a finished stack, but not of trials that diverged."""
    for trial, diverged_at in enumerate(stack.diverged_at):
        if diverged_at is None:
            save_net(stack, trial, net_path(folder, stack.configs[trial]))


def without_net(folder: AnyPath, configs: Sequence[TrialConfig]) -> list[TrialConfig]:
    """Those of the trials that have no net in a folder."""
    return [c for c in configs if not Path(f"{net_path(folder, c)}.json").exists()]
