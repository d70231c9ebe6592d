"""Training of one job: restore, train, save by the clock and at task ends, report progress."""

import re
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

import torch

from remask.config import TrialConfig
from remask.data.benchmark import Benchmark
from remask.engine import Position, TrialStack, save_net
from remask.engine.checkpoints import CheckpointFolder
from remask.engine.loss_log import LOG, LossLog
from remask.engine.saved_nets import check_predictor
from remask.errors import RemaskError
from remask.experiments.cost import training_flops
from remask.experiments.jobs import (
    Advanced,
    Event,
    Failed,
    Finished,
    Job,
    Logged,
    Note,
    benchmark_of,
)
from remask.experiments.options import RunOptions
from remask.files import AnyPath, Lock, LockHeldError
from remask.machine import StopRequest, check_device, lacks_memory
from remask.own_code import fingerprints_of
from remask.record import TrialRecord

_ORPHAN = 30.0  # seconds
_PACE = 0.1  # seconds between looks at requests to stop
_LARGEST_SHARE = 0.02
"""The share of the run's time that checkpoints at task ends may take."""
_DIGITS_OF_HASH = 12


def run_job(
    job: Job,
    folder: AnyPath | None,
    options: RunOptions,
    stop: StopRequest,
    *,
    benchmark: Benchmark | None = None,
    after_save: Callable[[], None] | None = None,
    seconds_between_reports: float = 0.25,
) -> Iterator[Event]:
    """Train a job to the end, from its latest checkpoint in `folder` if there is one.

    Yields `Advanced` on the way, and `Finished` or `Failed` at the end. If asked to stop, it saves
    and yields neither. Without a folder there are no checkpoints. The `benchmark` is loaded unless
    given; `after_save` is called after each checkpoint.
    """
    folder = None if folder is None else Path(folder)
    threads = torch.get_num_threads()
    # A worker whose parent was killed may hold the lock for a moment.
    lock = nullcontext() if folder is None else Lock(folder / "lock", timeout=_ORPHAN)
    try:
        with lock:
            torch.set_num_threads(options.threads)
            check_device(options.device)
            benchmark = benchmark_of(job.configs[0]) if benchmark is None else benchmark
            log = None if options.log_every is None else LossLog(options.log_every)
            stack = TrialStack(job.configs, benchmark, device=options.device, log=log)
            if options.save_nets is not None:
                check_predictor(stack.method)  # before hours are spent
            checkpoints = None if folder is None else CheckpointFolder(folder, identity=job.name)
            saver = _Saver(stack, checkpoints, options.checkpoint_seconds, after_save)
            for warning in saver.restore():
                yield Note(job.name, warning)
            reports = _Reports(job, stack, seconds_between_reports, logged=log is not None)
            yield from reports.now()
            learnt = stack.position.task
            for position in stack.run(_PACE):
                task_ended, learnt = position.task > learnt, position.task
                if stop.signal is not None:
                    saver.save()
                    return
                saver.save_if_due(task_ended=task_ended)
                if task_ended or reports.are_due():
                    yield from reports.now()
            yield from reports.now()
            if options.save_nets is not None:
                _save_nets(stack, options.save_nets)
            yield Finished(job.name, _records(stack, saver, options.device))
    except Exception as error:
        # A disk, or the lock of a process that is about to die, may be free next time.
        may_pass = not isinstance(error, RemaskError) or isinstance(error, OSError | LockHeldError)
        is_unknown = may_pass and not lacks_memory(error)
        place = "".join(traceback.format_exception(error)).rstrip() if is_unknown else ""
        yield Failed(job.name, describe_failure(error), place, may_pass)
    finally:
        torch.set_num_threads(threads)


def describe_failure(error: Exception) -> str:
    """The message of a user's mistake; of anything else also the place in the code."""
    if isinstance(error, RemaskError):
        return str(error)
    if lacks_memory(error):
        return "out of memory; use a smaller buffer, net or stack, or fewer workers"
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} (at {place.filename}:{place.lineno})"


def _records(stack: TrialStack, saver: "_Saver", device: str) -> list[TrialRecord]:
    """The records of a finished stack, with the time of all its sessions."""
    on = {"device": torch.cuda.get_device_name(device)} if device.startswith("cuda") else {}
    known = {
        "started": saver.started,
        "seconds": saver.seconds() / len(stack.configs),
        "own_code": saver.own_code,
        "flops": training_flops(stack),
    }
    return [
        record.model_copy(update={**known, "machine": record.machine | on})
        for record in stack.results()
    ]


class _Saver:
    """Saves a stack by the clock and at task ends, and measures the time over all sessions."""

    def __init__(
        self,
        stack: TrialStack,
        checkpoints: CheckpointFolder | None,
        seconds_between: float,
        after_save: Callable[[], None] | None,
    ) -> None:
        self.started = datetime.now(UTC)
        self.own_code = fingerprints_of(stack.configs[0].code)
        """Fingerprints of the user's own modules as they were in the first session."""
        self._stack, self._checkpoints = stack, checkpoints
        self._seconds_between, self._after_save = seconds_between, after_save
        self._earlier_seconds = 0.0
        self._began = self._last_saved = time.monotonic()
        self._last_cost = 0.0

    def seconds(self) -> float:
        """How long the stack has been running, over all sessions."""
        return self._earlier_seconds + time.monotonic() - self._began

    def restore(self) -> tuple[str, ...]:
        """Restore the latest good checkpoint, if any; returns warnings of damaged ones."""
        if self._checkpoints is None:
            return ()
        # It may have been saved with or without a log.
        state, growing = self._stack.state(), self._stack.growing
        saved = self._checkpoints.load(state, growing=growing, optional=(LOG,))
        if saved is None:
            return ()
        self._stack.restore(saved.tensors, Position(**saved.position))
        self.started = datetime.fromisoformat(str(saved.extra["started"]))
        own_code = saved.extra["own_code"]
        assert isinstance(own_code, dict)
        self.own_code = {module: str(fingerprint) for module, fingerprint in own_code.items()}
        self._earlier_seconds = float(str(saved.extra["seconds"]))
        return saved.warnings

    def save_if_due(self, *, task_ended: bool) -> None:
        """Save if the time has come, or at a task's end if that is cheap beside the task."""
        waited = time.monotonic() - self._last_saved
        worth_it = task_ended and self._last_cost <= _LARGEST_SHARE * waited
        if worth_it or waited >= self._seconds_between:
            self.save()

    def save(self) -> None:
        """Save now, if there is a folder."""
        if self._checkpoints is None:
            return
        began = time.monotonic()
        self._checkpoints.save(
            self._stack.state(),
            self._stack.position._asdict(),
            {
                "started": self.started.isoformat(),
                "seconds": self.seconds(),
                "own_code": {**self.own_code},
            },
        )
        if self._after_save is not None:
            self._after_save()
        self._last_saved = time.monotonic()
        self._last_cost = self._last_saved - began


class _Reports:
    """Reports the progress of a stack, and what it logged since the last report.

    After a restart the log is reported from its beginning: earlier reports may be lost.
    """

    def __init__(self, job: Job, stack: TrialStack, seconds: float, *, logged: bool) -> None:
        self._job, self._stack, self._seconds, self._logged = job, stack, seconds, logged
        self._points = self._tasks = 0
        self._next = 0.0

    def are_due(self) -> bool:
        return time.monotonic() >= self._next

    def now(self) -> Iterator[Event]:
        stack, job = self._stack, self._job
        yield Advanced(
            job=job.name,
            task=min(stack.position.task + 1, len(stack.tasks)),
            tasks=len(stack.tasks),
            steps_done=stack.steps_done,
            total_steps=stack.total_steps,
            accuracy=stack.measured.running_accuracy(),
        )
        self._next = time.monotonic() + self._seconds
        if not self._logged:
            return
        measured = stack.measured
        points, tasks = measured.loss_points(self._points), measured.task_points(self._tasks)
        self._points += len(points)
        self._tasks += len(tasks)
        if points or tasks:
            trials = [config.hash for config in job.configs]
            plain = [(step, task, values.tolist()) for step, task, values in points]
            yield Logged(job.name, trials, measured.loss_names, plain, tasks)


def net_path(folder: AnyPath, config: TrialConfig) -> Path:
    """The path of a trial's saved net, without .safetensors or .json."""
    method = re.sub(r"[^\w.-]", ".", config.method)
    mask = config.mask if isinstance(config.mask, str | None) else f"{config.mask:g}"
    mask = "" if mask is None else f"_mask{mask}"
    digits = config.hash[:_DIGITS_OF_HASH]
    return Path(folder) / f"{method}{mask}_buffer{config.buffer}_seed{config.seed}_{digits}"


def _save_nets(stack: TrialStack, folder: AnyPath) -> None:
    """Save the nets of a finished stack, except those of diverged trials."""
    for trial, diverged_at in enumerate(stack.diverged_at):
        if diverged_at is None:
            save_net(stack, trial, net_path(folder, stack.configs[trial]))


def without_net(folder: AnyPath, configs: Sequence[TrialConfig]) -> list[TrialConfig]:
    """The trials that have no net in a folder."""
    return [c for c in configs if not Path(f"{net_path(folder, c)}.json").exists()]
