"""Training a visit, and estimating how long it takes."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from remask.data.readers import SampleReader
from remask.engine import DataDescription, Position, TrialStack
from remask.engine.checkpoints import CheckpointFolder
from remask.learner.candidates import NAME, candidate_configs, is_conv, trial_config
from remask.learner.data import first_data
from remask.learner.manifest import DataNote, Manifest
from remask.learner.measuring import class_weights
from remask.learner.model import AT_ONCE, Model
from remask.learner.results import Progress, listed
from remask.learner.samples import HeldOut
from remask.learner.scoring import stack_log_probabilities
from remask.learner.staging import OnProgress
from remask.machine import StopRequest
from remask.memory import StoredRows

_PATIENCE_EPOCHS, _PATIENCE_STEPS = 2, 200  # without improvement, both of which end a visit
_LEAST_GAIN = 0.01  # of the log-likelihood
_LEAST = -1e300
_CROP_SHARE = 8  # images are cropped from a frame of an eighth of their side
_MEASURED_STEPS = 3


def make_stack(
    manifest: Manifest,
    model: Model,
    samples: int,
    *,
    seen: int,
    only_default: bool = False,
    earlier_samples: Sequence[StoredRows] = (),
) -> TrialStack:
    """Make the engine for a visit of `samples` samples, before it has learnt anything.

    `seen` counts the samples of all visits. With `only_default`, there is one candidate.
    """
    data, settings, method = manifest.data, manifest.settings, model.method
    assert data is not None
    assert method is not None
    replayed, _ = settings.places(data.kept.sample_bytes)
    config = trial_config(settings, method, replayed, data.net, samples)
    configs = candidate_configs(settings, config, method, remembered=manifest.lr, seen=seen)
    kept, how = data.kept, data.kept_seen
    augment = is_conv(data.net) if settings.augment is None else settings.augment
    augment = augment and kept.is_image
    description = DataDescription(
        input_shape=kept.shape,
        num_classes=manifest.outputs,
        name=NAME,
        input_type=kept.tensor_type,
        **how.model_dump(),
        crop_padding=min(kept.shape[1:]) // _CROP_SHARE if augment else 0,
        flip=augment,
    )
    return TrialStack(
        configs[:1] if only_default else configs,
        description,
        method=method,
        build_net=model.net_builder(data.net),
        device=model.device,
        earlier_samples=earlier_samples if method.draws else None,
        optimizer=settings.optimizer,
    )


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
        notes: dict[str, Any] = {
            "measured": self._measured,
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
        self._stack.restore(saved.tensors, Position(**saved.position))
        notes: Any = saved.extra
        self._measured = notes["measured"]
        self.steps, self.epochs, self.seconds = (notes[n] for n in ("steps", "epochs", "seconds"))
        return True

    def _enough(self, epochs: int) -> bool:
        """Whether held-out accuracy and likelihood have stopped rising, or all trials diverged."""
        if self._stack.configs[0].epochs == 1 or self.all_diverged():
            return True
        self._measured = [*self._measured[: epochs - 1], self._measure()]
        since = epochs - 1 - _latest_rise(self._measured)
        return since >= _PATIENCE_EPOCHS and since * self.steps >= _PATIENCE_STEPS * epochs

    def _measure(self) -> list[float]:
        """Return accuracy and log-likelihood of the best trial; every class weighs the same.

        The likelihood rises while a net still learns, before the first sample changes sides.
        """
        if not len(self._held):
            return [0.0, 0.0]
        rated = stack_log_probabilities(self._stack, self._held, self._manifest, self._device)
        truth = self._held.truth(self._manifest)
        weights = class_weights(truth)
        right = (rated.argmax(2) == truth).double() @ weights
        likelihood = rated.gather(2, truth.expand(len(rated), -1).unsqueeze(2)).squeeze(2) @ weights
        # JSON has no -inf, the likelihood of a class that a method does not predict yet.
        likelihood = likelihood.nan_to_num(nan=_LEAST, posinf=_LEAST, neginf=_LEAST)
        return [float(right.max()), float(likelihood.max())]


def _latest_rise(measured: Sequence[Sequence[float]]) -> int:
    """Return the latest epoch, from 0, that was better than all before it by either measure."""
    latest, (accuracy, likelihood) = 0, measured[0]
    for epoch, now in enumerate(measured):
        if now[0] > accuracy or now[1] > likelihood + _LEAST_GAIN:
            latest, accuracy, likelihood = epoch, max(accuracy, now[0]), max(likelihood, now[1])
    return latest


@dataclass(frozen=True)
class Estimate:
    """What a visit would learn, and how long it would take on this machine."""

    samples: int
    classes: tuple[str, ...]
    new_classes: tuple[str, ...]
    encoder: str | None
    net: str | None
    """The net that would be trained; None if none is."""
    reading_seconds: float
    """To read all samples and compute their features."""
    training_seconds: float
    """At most: a visit ends when accuracy on held-out samples stops rising."""

    def __str__(self) -> str:
        new = f" ({len(self.new_classes)} new: {listed(self.new_classes)})" * bool(self.new_classes)
        lines = [f"{self.samples:,} samples of {len(self.classes)} classes{new}"]
        encoded = "" if self.encoder is None else f" and encode them with {self.encoder}"
        lines.append(f"  to read{encoded}: about {self.reading_seconds:.0f} s")
        if self.net is not None:
            lines.append(f"  to train ({self.net}): at most {self.training_seconds:.0f} s")
        return "\n".join([*lines, "nothing was learnt"])


def estimate(manifest: Manifest, model: Model, source: SampleReader) -> Estimate:
    """Estimate a visit. Raises LearnerError or DataError if it could not be learnt."""
    data = manifest.data or first_data(source, model)
    features = model.features(data)
    if features is not None and not data.inputs.is_text:  # the first pass allocates
        features.encode([np.zeros(data.inputs.shape, data.inputs.dtype)] * 2)
    began = time.monotonic()
    group = list(islice(source.samples(data.inputs), AT_ONCE))
    if features is not None:
        features.encode(group)
    per_sample = (time.monotonic() - began) / len(group)
    classes = tuple(dict.fromkeys(source.names or []))
    trains = manifest.settings.trains(features=data.features is not None)
    return Estimate(
        samples=source.count,
        classes=classes,
        new_classes=tuple(name for name in classes if name not in manifest.known),
        encoder=None if data.encoder is None else data.encoder.name,
        net=data.net if trains else None,
        reading_seconds=per_sample * source.count,
        training_seconds=_training(manifest, data, model, source.count) if trains else 0.0,
    )


def _training(manifest: Manifest, data: DataNote, model: Model, samples: int) -> float:
    """Return the seconds of all steps, from a few steps on random inputs."""
    learnt = manifest.model_copy(update={"data": data})
    stack = make_stack(learnt, model, samples, seen=samples)
    config = stack.configs[0]
    count = config.batch * (_MEASURED_STEPS + 1)
    if data.kept.dtype == "float32":
        inputs = torch.randn(count, *data.kept.shape)
    else:
        inputs = torch.randint(0, 2, (count, *data.kept.shape)).to(data.kept.tensor_type)
    task = stack.new_task(inputs, torch.arange(count) % 2)
    began = 0.0
    for step, _ in enumerate(stack.learn_steps(task, enough=lambda _: True)):
        if not step:  # the first one allocates
            began = time.monotonic()
    per_step = (time.monotonic() - began) / _MEASURED_STEPS
    return per_step * config.epochs * -(-samples // config.batch)
