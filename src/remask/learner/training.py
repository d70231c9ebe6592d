"""Training a visit, and choosing among candidates: masks, learning rates and heads.

Candidates are compared on held-out samples by
the rule of the engine: the default is kept unless another one is significantly better.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from pydantic import JsonValue
from torch import Tensor

from remask.config import TrialConfig
from remask.engine import Position, TrialStack
from remask.engine.checkpoints import CheckpointFolder
from remask.engine.choosing import choice as choose_candidate
from remask.engine.choosing import fading_name
from remask.errors import RemaskError
from remask.learner.calibration import class_weights
from remask.learner.folder import Tensors
from remask.learner.manifest import Manifest
from remask.learner.model import Model
from remask.learner.results import Choice, Progress
from remask.learner.samples import HeldOut, Statistics
from remask.learner.scoring import score_held_out, stack_log_probabilities
from remask.learner.settings import AUTO, MISFITS, LearnerError
from remask.learner.stacks import one_of
from remask.learner.staging import OnProgress
from remask.machine import StopRequest
from remask.memory import StoredRows
from remask.setting_types import write_mask

_PATIENCE_EPOCHS, _PATIENCE_STEPS = 2, 200  # without improvement, both of which end a visit
_LEAST_GAIN = 0.01  # of the log-likelihood


@dataclass(frozen=True, eq=False)
class Candidate:
    """A state that the learner could have after a change."""

    name: str
    manifest: Manifest
    tensors: Tensors
    """Of the head, or of the net and its training."""


@dataclass(frozen=True, eq=False)
class Chosen:
    """The best candidate."""

    candidate: Candidate
    why: str
    scores: Tensor
    """[n, C] of held-out samples of known classes."""
    truth: Tensor
    """Their true columns [n]."""


def choose(
    manifest: Manifest,
    statistics: Statistics | None,
    nets: Sequence[Candidate],
    held: HeldOut,
    model: Model,
) -> Chosen:
    """Choose by accuracy on held-out samples among the heads in closed form and trained nets."""
    heads = () if statistics is None else manifest.settings.heads
    candidates = [
        Candidate(name, manifest.model_copy(update={"head": name}), statistics.head(name))
        for name in heads
        if statistics is not None
    ]
    candidates += nets
    scores = [score_held_out(held, each.manifest, each.tensors, model) for each in candidates]
    right = torch.stack([rated.argmax(1) == truth for rated, truth in scores])
    names = [each.name for each in candidates]
    best, why = _compare(names, right, scores[0][1], [True] * len(candidates))
    return Chosen(candidates[best], why, *scores[best])


def choose_trial(
    stack: TrialStack, held: HeldOut, manifest: Manifest, model: Model
) -> tuple[Tensors, Choice]:
    """Choose a trial of a stack; return its state and its settings."""
    truth = held.truth(manifest)
    right = stack_log_probabilities(stack, held, manifest, model.device).argmax(-1) == truth
    configs = stack.configs
    usable = [diverged_at is None for diverged_at in stack.diverged_at]
    chosen, why = _compare([_shown(config, configs) for config in configs], right, truth, usable)
    config = configs[chosen]
    if not why:
        why = "the default; there is nothing to compare it with"
        if model.settings.mask != AUTO or not config.buffer:
            why = "as the learner was created"
    settings = {"mask": _mask(config), "fade": config.fade, "fade_power": config.fade_power}
    choice = Choice(lr=config.lr, why=why, **settings)
    return one_of(stack.state(), chosen, len(configs)), choice


def _compare(
    names: Sequence[str], right: Tensor, truth: Tensor, usable: Sequence[bool]
) -> tuple[int, str]:
    """Choose by whether each candidate was right [C, n] about held-out samples; return why."""
    if len(names) == 1:
        return 0, ""
    if not len(truth):
        first = next((n for n, own in enumerate(usable) if own), 0)
        return first, "the default; there are no held-out samples to compare on"
    chosen, scores, errors = choose_candidate(right.numpy(), truth.numpy(), np.array(usable))
    found = ", ".join(
        f"{name} {score:.1f} %" if own else f"{name} diverged"
        for name, score, own in zip(names, scores, usable, strict=True)
    )
    why = "the default; no other is significantly better"
    if not usable[0]:
        why = "the default diverged"
    elif chosen:
        ahead = scores[chosen] - scores[0]
        why = f"{ahead:.1f} ±{errors[chosen]:.1f} points better than the default"
    return chosen, f"{why} (accuracy on {len(truth)} held-out samples: {found})"


def _mask(config: TrialConfig) -> str:
    written = write_mask(config.mask)
    return f"{written:g}" if isinstance(written, float) else written or "none"


def _shown(config: TrialConfig, configs: Sequence[TrialConfig]) -> str:
    mask = f"{_mask(config)} fading {fading_name(config)}" if config.fade else _mask(config)
    if len({own.lr for own in configs}) == 1:
        return f"m = {mask}"
    alike = len({(own.mask, own.fade) for own in configs}) == 1
    return f"lr {config.lr:g}" if alike else f"m = {mask} lr {config.lr:g}"


class Training:
    """Trains a stack on the samples of one visit, until held-out accuracy stops rising."""

    def __init__(
        self,
        stack: TrialStack,
        held: HeldOut,
        manifest: Manifest,
        device: torch.device,
        checkpoints: CheckpointFolder | None = None,
        checkpoint_seconds: float = math.inf,
    ) -> None:
        self._stack, self._held, self._manifest, self._device = stack, held, manifest, device
        self._checkpoints, self._every = checkpoints, checkpoint_seconds
        self._measured: list[list[float]] = []  # accuracy and log-likelihood after each epoch
        self.steps, self.epochs, self.seconds = 0, 0, 0.0

    def run(
        self, inputs: StoredRows, labels: Tensor, on_progress: OnProgress | None = None
    ) -> None:
        """Learn the samples, from the latest checkpoint if there is one.

        An error in `on_progress`, or a signal to stop, ends the training with a checkpoint.
        """
        stack, start = self._stack, self._stack.position.task
        resumed = self._resume()
        if stack.position.task != start:
            return
        task, config = stack.new_task(inputs, labels), stack.configs[0]
        steps = -(-len(labels) // config.batch) * config.epochs
        began = last = time.monotonic()
        earlier = self.seconds
        with StopRequest() as stop:
            for position in stack.learn_steps(task, enough=self._enough):
                now = time.monotonic()
                self.steps, self.epochs = self.steps + 1, position.epoch + 1
                self.seconds = earlier + now - began
                try:
                    if on_progress is not None:
                        on_progress(Progress(self.steps, steps, self.epochs, resumed))
                    if stop.signal is not None:
                        raise KeyboardInterrupt(stop.signal)
                except BaseException:
                    self.save()
                    raise
                if now - last >= self._every:
                    self.save()
                    last = time.monotonic()

    def all_diverged(self) -> bool:
        """Whether the loss of every trial became NaN or infinite."""
        return None not in self._stack.diverged_at

    def save(self) -> None:
        """Write a checkpoint."""
        if self._checkpoints is None:
            return
        notes: dict[str, JsonValue] = {
            # JSON has no -inf, the likelihood of a class that a method does not predict yet.
            "measured": [[v if math.isfinite(v) else None for v in own] for own in self._measured],
            "epochs": self.epochs,
            "steps": self.steps,
            "seconds": self.seconds,
        }
        self._checkpoints.save(self._stack.state(), self._stack.position._asdict(), notes)

    def _resume(self) -> bool:
        if self._checkpoints is None:
            return False
        saved = self._checkpoints.load(self._stack.state(), growing=self._stack.growing)
        if saved is None:
            return False
        try:
            self._stack.restore(saved.tensors, Position(**saved.position))
            notes: Any = saved.extra
            self._measured = [
                [-math.inf if value is None else float(value) for value in (accuracy, likelihood)]
                for accuracy, likelihood in notes["measured"]
            ]
            self.steps, self.epochs = int(notes["steps"]), int(notes["epochs"])
            self.seconds = float(notes["seconds"])
        except (*MISFITS, RemaskError) as error:
            raise LearnerError(
                f"the checkpoint of the visit is damaged: {type(error).__name__}: "
                f"{str(error)[:200]}. Learn the visit again from its beginning with discard=True "
                f"(--discard)."
            ) from error
        return True

    def _enough(self, epochs: int) -> bool:
        """Whether held-out accuracy and likelihood have stopped rising, or all trials diverged."""
        if self._stack.configs[0].epochs == 1 or self.all_diverged():
            return True
        self._measured = [*self._measured[: epochs - 1], self._measure()]
        since = epochs - 1 - _latest_rise(self._measured)
        return since >= _PATIENCE_EPOCHS and since * self.steps >= _PATIENCE_STEPS * epochs

    def _measure(self) -> list[float]:
        """Accuracy and log-likelihood of the best trial; every class weighs the same.

        The likelihood rises while a net still learns, before the first sample changes sides.
        """
        if not len(self._held):
            return [0.0, 0.0]
        rated = stack_log_probabilities(self._stack, self._held, self._manifest, self._device)
        truth = self._held.truth(self._manifest)
        weights = class_weights(truth)
        right = (rated.argmax(2) == truth).double() @ weights
        likelihood = rated.gather(2, truth.expand(len(rated), -1).unsqueeze(2)).squeeze(2) @ weights
        likelihood = likelihood.nan_to_num(nan=-torch.inf, posinf=-torch.inf)
        return [float(right.max()), float(likelihood.max())]


def _latest_rise(measured: Sequence[Sequence[float]]) -> int:
    """The latest epoch, counted from 0, that was better than all before it by either measure."""
    latest, (accuracy, likelihood) = 0, measured[0]
    for epoch, now in enumerate(measured):
        if now[0] > accuracy or now[1] > likelihood + _LEAST_GAIN:
            latest, accuracy, likelihood = epoch, max(accuracy, now[0]), max(likelihood, now[1])
    return latest
