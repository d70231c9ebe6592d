"""What a learner has learnt, and what a visit would take, without learning anything."""

import os
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from remask.data.readers import SampleReader
from remask.files import AnyPath
from remask.learner.data import first_data
from remask.learner.folder import HELD_LABELS, LearnerFolder, memory_of
from remask.learner.manifest import DataNote, Manifest
from remask.learner.model import AT_ONCE, Model
from remask.learner.results import Calibration, Choice, html_table, listed, paragraphs, percent
from remask.learner.settings import LearnerError
from remask.learner.stacks import make_stack

_MEASURED_STEPS = 3
_UNITS = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


@dataclass(frozen=True)
class ClassSummary:
    """One class of a learner."""

    name: str
    seen: int
    """Samples that visits have learnt from."""
    kept: int
    """Samples in the memory, to replay and held out."""
    bytes: int
    """Size of the samples in the memory."""
    accuracy: float | None
    """Percent right on held-out samples after the last visit."""


@dataclass(frozen=True)
class Summary:
    """Summary of a learner."""

    folder: str
    net: str
    encoder: str | None
    """The encoder that computes features, if any."""
    head: str
    """`net`, or a head in closed form."""
    method: str
    classes: tuple[ClassSummary, ...]
    visits: int
    unfinished: str | None
    """The name of an unfinished visit."""
    settings: dict[str, Any]
    """What the learner was created with."""
    choice: Choice | None
    """Settings that the last visit chose."""
    calibration: Calibration | None
    generation: int
    earlier: tuple[str, ...]
    """The visits that `undo` can take back, latest last."""
    input_shape: tuple[int, ...] | None
    input_type: str | None
    disk: dict[str, int]
    """Bytes per kind of file, and `total`."""

    def __str__(self) -> str:
        kept = sum(each.kept for each in self.classes)
        size = sum(each.bytes for each in self.classes)
        model = f"net {self.net}" if self.head == "net" else f"head {self.head}"
        model += "" if self.encoder is None else f" on {self.encoder}"
        inputs = "" if self.input_shape is None else f", inputs {self.input_type} "
        inputs += "" if self.input_shape is None else str(list(self.input_shape))
        lines = [
            f"{self.folder}: {len(self.classes)} classes in {self.visits} visits",
            f"  {model}, method {self.method}{inputs}",
            f"  memory: {kept} samples, {_size(size)} (setting: {self.settings['memory']})",
            f"  on disk: {_size(self.disk['total'])}, of which samples "
            f"{_size(self.disk.get('samples', 0))}",
            f"  generation {self.generation}; `undo` can take back: "
            f"{listed(self.earlier[::-1]) or 'nothing'}",
        ]
        shown = (f"{name} {value}" for name, value in self.settings.items() if value is not None)
        lines.append(f"  settings: {', '.join(shown)}")
        if self.choice is not None:
            lines.append(f"  last visit: {self.choice}")
        if self.calibration is not None:
            lines.append(
                f"  calibration: temperature {self.calibration.temperature:.2f}, expected error "
                f"{self.calibration.ece_after:.1f} % on {self.calibration.samples} held-out samples"
            )
        if self.unfinished is not None:
            lines.append(f"  unfinished visit: {self.unfinished}")
        width = max((len(each.name) for each in self.classes), default=0)
        lines += [
            f"    {each.name:<{width}}  {each.seen:>7,} seen  {each.kept:>6,} kept  "
            f"{_size(each.bytes):>8}"
            + ("" if each.accuracy is None else f"  {each.accuracy:5.1f} % right")
            for each in self.classes
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        about, *_ = str(self).splitlines()
        rows = [
            (each.name, each.seen, each.kept, _size(each.bytes), percent(each.accuracy))
            for each in self.classes
        ]
        head = ("class", "seen", "kept", "size", "right (%)")
        return paragraphs([about]) + html_table(head, rows)


def summarise(folder: AnyPath) -> Summary:
    """Return the summary of the learner in a folder. Raises LearnerError."""
    return summary(LearnerFolder.open(Path(folder).expanduser()))


def summary(folder: LearnerFolder) -> Summary:
    """Return the summary of a learner. Raises LearnerError."""
    manifest, settings = folder.manifest, folder.manifest.settings
    data, history = manifest.data, manifest.history
    last = history[-1] if history else None
    sample_bytes = 0 if data is None else data.kept.sample_bytes
    seen: Counter[str] = Counter()
    for visit in history:
        seen.update(visit.samples)
    kept: Counter[str] = Counter()
    if manifest.known:
        state = folder.read_state()
        labels = [*state[HELD_LABELS].tolist(), *memory_of(state)[1].tolist()]
        kept.update(str(manifest.classes[label]) for label in labels)
    try:
        note = folder.visit.note()
        unfinished = None if note is None else note.name
    except LearnerError as error:
        unfinished = f"({error})"
    return Summary(
        folder=str(folder.path),
        net=settings.net if data is None else data.net,
        encoder=None if data is None or data.encoder is None else data.encoder.name,
        head=manifest.head,
        method=settings.method,
        classes=tuple(
            ClassSummary(
                name,
                seen[name],
                kept[name],
                kept[name] * sample_bytes,
                None if last is None else last.accuracy.get(name),
            )
            for name in manifest.known
        ),
        visits=len(history),
        unfinished=unfinished,
        settings=settings.model_dump(mode="json"),
        choice=None if last is None else last.choice,
        calibration=manifest.calibration,
        generation=manifest.generation,
        earlier=tuple(history[each.visits].name for each in manifest.earlier),
        input_shape=None if data is None else data.inputs.shape,
        input_type=None if data is None else data.inputs.dtype,
        disk=_disk(folder.path),
    )


def _disk(folder: Path) -> dict[str, int]:
    sizes: Counter[str] = Counter()
    for root, _, files in os.walk(folder):
        for name in files:
            kind = "visit" if Path(root) != folder else name.partition("-")[0].partition(".")[0]
            with suppress(FileNotFoundError):  # another process has removed it
                sizes[kind] += Path(root, name).lstat().st_size
    sizes["total"] = sum(sizes.values())
    return dict(sizes)


def _size(count: int) -> str:
    for factor, unit in _UNITS:
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} B"


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
    """The seconds of all steps, from a few steps on random inputs."""
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
