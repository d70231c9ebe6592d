"""Training of one visit: from where the learner stands to where it will, checkpoints in between."""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import NamedTuple

import torch
from pydantic import JsonValue
from torch import Tensor

from remask.config import TrialConfig
from remask.engine import DataDescription, Position, TrialStack
from remask.engine.checkpoints import CheckpointFolder
from remask.learner.architecture import Architecture
from remask.learner.encoding import OnProgress, Progress
from remask.learner.errors import LearnerError
from remask.learner.manifest import SMALLEST_HEAD, Manifest
from remask.learner.settings import NAME
from remask.learner.state import MISFITS
from remask.memory import StoredRows
from remask.methods import Method

_PATIENCE_EPOCHS, _PATIENCE_STEPS = 2, 200  # so many of both without a rise end a visit
_LIKELIER = 0.01  # a rise of the log-likelihood by less is none
_CROP_SHARE = 8  # images are cropped from a frame of an eighth of their side


class Measured(NamedTuple):
    """How good a stack is, by samples that are held out."""

    accuracy: float
    likelihood: float
    """Its logarithm. It tells a net that still learns from one that does not, while accuracy waits
    for the first sample to change sides."""


Measure = Callable[[TrialStack], Measured]


@dataclass(frozen=True)
class Trained:
    """What training took."""

    epochs: int
    steps: int
    seconds: float


def outputs_for(classes: int, now: int) -> int:
    """How many outputs a head gets: no more than needed, but never fewer than it has.

    Distillation averages squared differences over all outputs, so spare ones would weaken it. A
    learner of few classes has the ten outputs for which the settings were published.
    """
    return max(SMALLEST_HEAD, now, classes)


def make_stack(
    manifest: Manifest,
    configs: Sequence[TrialConfig],
    method: type[Method],
    architecture: Architecture,
    device: torch.device | str,
    earlier_samples: Sequence[StoredRows] | None,
) -> TrialStack:
    """The engine of a learner, which has learnt nothing yet."""
    assert manifest.data is not None
    kept, seen = manifest.data.kept, manifest.data.kept_seen
    augment = manifest.settings.augments(manifest.data.net) and kept.is_image
    description = DataDescription(
        input_shape=kept.shape,
        num_classes=manifest.outputs,
        name=NAME,
        input_type=kept.tensor_type,
        scale=seen.scale,
        mean=seen.mean,
        std=seen.std,
        crop_padding=min(kept.shape[1:]) // _CROP_SHARE if augment else 0,
        flip=augment,
    )
    return TrialStack(
        configs,
        description,
        method=method,
        build_net=architecture.build,
        device=device,
        earlier_samples=earlier_samples,
        optimizer=manifest.settings.optimizer,
    )


def all_diverged(stack: TrialStack) -> bool:
    """Whether no trial of a stack has a loss that is a number."""
    return None not in stack.diverged_at


class VisitTraining:
    """Learns the samples of one visit, from its latest checkpoint if there is one."""

    def __init__(
        self,
        stack: TrialStack,
        checkpoints: CheckpointFolder | None,
        *,
        measure: Measure,
        checkpoint_seconds: float = math.inf,
    ) -> None:
        self._stack, self._checkpoints = stack, checkpoints
        self._every = checkpoint_seconds
        self._measure = measure
        self._measured: list[Measured] = []
        self._steps, self._seconds, self._epochs = 0, 0.0, 0
        self._finished = False

    def run(
        self,
        inputs: StoredRows,
        labels: Tensor,
        begin: Callable[[TrialStack], None],
        on_progress: OnProgress | None,
    ) -> Trained:
        """Learn the samples; `begin` brings the stack to where the learner stands.

        What `on_progress` raises ends the training, with a checkpoint.
        """
        stack = self._stack
        resumed = self._resume(begin)
        if self._finished:
            return Trained(self._epochs, self._steps, self._seconds)
        task = stack.new_task(inputs, labels)
        config = stack.configs[0]
        steps = -(-len(labels) // config.batch) * config.epochs
        began = last = time.monotonic()
        earlier = self._seconds
        with _interrupts_wait() as interrupted:
            for position in stack.learn_steps(task, enough=self._enough):
                self._steps += 1
                now = time.monotonic()
                self._seconds = earlier + now - began
                self._epochs = position.epoch + 1
                try:
                    if on_progress is not None:
                        on_progress(Progress(self._steps, steps, position.epoch + 1, resumed))
                    if interrupted():
                        raise KeyboardInterrupt
                except BaseException:
                    self._save()
                    raise
                if now - last >= self._every:
                    self._save()
                    last = time.monotonic()
        return Trained(self._epochs, self._steps, self._seconds)

    def save(self) -> None:
        """Write a checkpoint, so that the same call does not train again."""
        self._save()

    def _enough(self, epochs: int) -> bool:
        """Whether accuracy on held-out samples has stopped rising, or the nets are lost."""
        if self._stack.configs[0].epochs == 1 or all_diverged(self._stack):
            return True
        self._measured = [*self._measured[: epochs - 1], self._measure(self._stack)]
        since = epochs - 1 - _latest_rise(self._measured)
        return since >= _PATIENCE_EPOCHS and since * self._steps >= _PATIENCE_STEPS * epochs

    def _save(self) -> None:
        if self._checkpoints is None:
            return
        notes: dict[str, JsonValue] = {
            # JSON has no -inf, the likelihood of a class that a method does not predict yet.
            "measured": [
                [value if math.isfinite(value) else None for value in pair]
                for pair in self._measured
            ],
            "epochs": self._epochs,
            "steps": self._steps,
            "seconds": self._seconds,
        }
        self._checkpoints.save(self._stack.state(), self._stack.position._asdict(), notes)

    def _resume(self, begin: Callable[[TrialStack], None]) -> bool:
        begin(self._stack)
        if self._checkpoints is None:
            return False
        saved = self._checkpoints.load(self._stack.state(), growing=self._stack.growing)
        if saved is None:
            return False
        begun = self._stack.position.task
        try:
            self._stack.restore(saved.tensors, Position(**saved.position))
            names = ("measured", "steps", "seconds", "epochs")
            measured, steps, seconds, epochs = (saved.extra[name] for name in names)
            assert isinstance(measured, list)
            self._measured = [_read_measured(pair) for pair in measured]
            self._steps, self._seconds = int(str(steps)), float(str(seconds))
            self._epochs = int(str(epochs))
        except MISFITS as error:
            raise LearnerError(
                f"the checkpoint of the visit is damaged: {type(error).__name__}: "
                f"{str(error)[:200]}. Learn the visit again from its beginning with discard=True "
                f"(--discard)."
            ) from error
        self._finished = self._stack.position.task > begun
        return True


def _read_measured(pair: JsonValue) -> Measured:
    assert isinstance(pair, list)
    accuracy, likelihood = (-math.inf if value is None else float(str(value)) for value in pair)
    return Measured(accuracy, likelihood)


def _latest_rise(measured: Sequence[Measured]) -> int:
    """The latest epoch, counted from 0, that was better than all before it by either measure."""
    latest, best = 0, measured[0]
    for epoch, now in enumerate(measured):
        if now.accuracy > best.accuracy or now.likelihood > best.likelihood + _LIKELIER:
            latest, best = epoch, Measured(*map(max, best, now))
    return latest


@contextmanager
def _interrupts_wait() -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C wait for the end of a step, where everything can be saved."""
    asked = threading.Event()
    usual = signal.getsignal(signal.SIGINT)
    main = threading.current_thread() is threading.main_thread()
    if not main or usual is not signal.default_int_handler:
        yield asked.is_set
        return

    def note(number: int, frame: FrameType | None) -> None:
        if asked.is_set():  # asked twice: at once
            raise KeyboardInterrupt
        asked.set()

    signal.signal(signal.SIGINT, note)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, usual)
