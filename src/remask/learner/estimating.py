"""How long a visit would take, measured on a few of its samples."""

import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from remask.learner.accounts import listed
from remask.learner.architecture import Parts
from remask.learner.arrival import Arrival
from remask.learner.choosing import candidate_configs
from remask.learner.features import AT_ONCE
from remask.learner.manifest import DataNote, Manifest, Seen
from remask.learner.settings import most_epochs, places, trial_config
from remask.learner.training import make_stack, outputs_for
from remask.user_data import SampleReader

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
        lines = [f"{self.samples:,} samples of {len(self.classes)} classes{new}"]
        encoded = "" if self.encoder is None else f" and encode them with {self.encoder}"
        lines.append(f"  to read{encoded}: about {self.reading_seconds:.0f} s")
        if self.net is not None:
            lines.append(f"  to train ({self.net}): at most {self.training_seconds:.0f} s")
        return "\n".join([*lines, "nothing was learnt"])


def estimate(manifest: Manifest, folder: Path, parts: Parts, source: SampleReader) -> Estimate:
    """Estimate a visit. Raises LearnerError or DataError if it could not be learnt."""
    data = manifest.data or Arrival(manifest, folder, parts).first_data(source)
    features = parts.features(data)
    if features is not None and not data.inputs.is_text:  # the first pass allocates
        features.encode([np.zeros(data.inputs.shape, data.inputs.dtype)] * 2)
    began = time.monotonic()
    group = list(islice(source.samples(data.inputs), AT_ONCE))
    if features is not None:
        features.encode(group)
    per_sample = (time.monotonic() - began) / len(group)
    names = source.names or []
    classes = tuple(dict.fromkeys(names))
    trains = manifest.settings.trains(features=data.features is not None)
    return Estimate(
        samples=source.count,
        classes=classes,
        new_classes=tuple(name for name in classes if name not in manifest.known),
        encoder=None if data.encoder is None else data.encoder.name,
        net=data.net if trains else None,
        reading_seconds=per_sample * source.count,
        training_seconds=_training(manifest, data, parts, source.count) if trains else 0.0,
    )


def _training(manifest: Manifest, data: DataNote, parts: Parts, samples: int) -> float:
    """The seconds of all steps, by a few steps on random inputs."""
    settings, method = manifest.settings, parts.method
    assert method is not None
    replayed, _ = places(settings.memory, data.kept.sample_bytes)
    config = trial_config(settings, method, replayed, data.net)
    epochs = most_epochs(settings, config, samples, data.net)
    configs = candidate_configs(settings, config, method, remembered=manifest.lr, samples=samples)
    if data.features is not None and data.features_seen is None:
        data = data.model_copy(update={"features_seen": Seen(scale=1.0)})
    outputs = outputs_for(2, manifest.outputs)
    stack = make_stack(
        manifest.model_copy(update={"data": data, "outputs": outputs}),
        configs,
        method,
        parts.architecture(data),
        parts.device,
        [] if method.draws else None,
    )
    count = config.batch * (_MEASURED_STEPS + 1)
    if data.kept.dtype == "float32":
        inputs = torch.randn(count, *data.kept.shape)
    else:
        inputs = torch.randint(0, 2, (count, *data.kept.shape)).to(data.kept.tensor_type)
    task = stack.new_task(inputs, torch.arange(count) % 2)
    began, steps = 0.0, 0
    for steps, _ in enumerate(stack.learn_steps(task, enough=lambda _: True)):
        if not steps:  # the first one allocates
            began = time.monotonic()
    share = (time.monotonic() - began) / max(steps, 1)
    return share * epochs * -(-samples // config.batch)
