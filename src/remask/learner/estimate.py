"""Estimating how long a visit takes, from a few samples and steps."""

import time
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch

from remask.data.readers import SampleReader
from remask.encoders.encoder import CHUNK
from remask.errors import counted
from remask.learner.data import first_data
from remask.learner.manifest import DataNote, Manifest
from remask.learner.model import Model
from remask.learner.results import listed
from remask.learner.training import make_stack

_MEASURED_STEPS = 3


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
        lines = [f"{self.samples:,} samples of {counted(len(self.classes), 'class')}{new}"]
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
    group = list(islice(source.samples(data.inputs), CHUNK))
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
        training_seconds=_training_seconds(manifest, data, model, source.count) if trains else 0.0,
    )


def _training_seconds(manifest: Manifest, data: DataNote, model: Model, samples: int) -> float:
    """Estimate the time of all steps from a few steps on random inputs."""
    stack = make_stack(manifest.changed(data=data), model, samples, seen=samples)
    config = stack.configs[0]
    count = config.batch * (_MEASURED_STEPS + 1)
    inputs = torch.randint(0, 2, (count, *data.kept.shape)).to(data.kept.tensor_type)
    task = stack.new_task(inputs, torch.arange(count) % 2)
    began = 0.0
    for step, _ in enumerate(stack.learn_steps(task, enough=lambda _: True)):
        if not step:  # the first one allocates
            began = time.monotonic()
    per_step = (time.monotonic() - began) / _MEASURED_STEPS
    return per_step * config.epochs * -(-samples // config.batch)
