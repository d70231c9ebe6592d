"""Summary of a learner, from its folder; it needs no code of its net or method."""

import html
import os
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remask.files import AnyPath
from remask.learner.errors import LearnerError
from remask.learner.folder import HELD_LABELS, LearnerFolder
from remask.learner.manifest import Manifest
from remask.learner.results import Calibration, Choice, html_table, listed, percent
from remask.learner.samples import memory_of
from remask.learner.settings import AUTO, AUTO_METHOD, trial_config
from remask.methods import find_method
from remask.own_code import names_own_code

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
    effective: dict[str, Any]
    """Settings of the next visit; empty for a method of your own."""
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
        shown = self.effective or self.settings
        lines.append("  settings: " + ", ".join(f"{k} {v}" for k, v in shown.items()))
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
        return f"<p>{html.escape(about)}</p>{html_table(head, rows)}"


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
        effective=_effective(manifest),
        choice=None if last is None else last.choice,
        calibration=manifest.calibration,
        generation=manifest.generation,
        earlier=tuple(history[each.visits].name for each in manifest.earlier),
        input_shape=None if data is None else data.inputs.shape,
        input_type=None if data is None else data.inputs.dtype,
        disk=_disk(folder.path),
    )


def _effective(manifest: Manifest) -> dict[str, Any]:
    settings, data = manifest.settings, manifest.data
    trains = settings.trains(features=data is not None and data.features is not None)
    if names_own_code(settings.method) or not trains:
        return {}
    method = find_method(AUTO_METHOD if settings.method == AUTO else settings.method)
    replayed, held_out = settings.places(1 if data is None else data.kept.sample_bytes)
    net = settings.net if data is None else data.net
    config = trial_config(settings, method, replayed, net, 1000)
    return {
        "replayed": replayed,
        "held_out": held_out,
        "lr": manifest.lr or config.lr,
        "batch": config.batch,
        "replay_batch": config.replay_batch,
        "optimizer": settings.optimizer,
        "mask": settings.mask,
        "seed": settings.seed,
        "keep_generations": settings.keep_generations,
    }


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
