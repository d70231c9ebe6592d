"""A summary of a learner, from its folder: no code of its net or method is needed."""

import html
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remask.durable import AnyPath
from remask.learner import staging
from remask.learner.accounts import Calibration, Choice, html_table, listed
from remask.learner.errors import LearnerError
from remask.learner.folder import LearnerFolder
from remask.learner.heldout import LABELS
from remask.learner.manifest import Manifest
from remask.learner.settings import AUTO, AUTO_METHOD, places, trial_config
from remask.learner.state import MEMORY_LABELS
from remask.memory import EMPTY
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
    """Size of those that are kept."""
    accuracy: float | None
    """Percent right on held-out samples after the last visit."""


@dataclass(frozen=True)
class Summary:
    """What a learner is and has learnt."""

    folder: str
    net: str
    encoder: str | None
    """What computes features; None if there is nothing like it."""
    head: str
    """What predicts: `net`, or a head in closed form."""
    method: str
    classes: tuple[ClassSummary, ...]
    visits: int
    unfinished: str | None
    """The name of a visit that has begun and is not finished."""
    settings: dict[str, Any]
    """What the learner was created with."""
    effective: dict[str, Any]
    """What the next visit is learnt with; empty for a method of your own."""
    choice: Choice | None
    """The settings that the last visit has chosen."""
    calibration: Calibration | None
    generation: int
    earlier: tuple[str, ...]
    """The visits that `undo` can take back, latest last."""
    input_shape: tuple[int, ...] | None
    input_type: str | None
    disk: dict[str, int]
    """Bytes of each kind of file, and in all."""

    def __str__(self) -> str:
        kept = sum(each.kept for each in self.classes)
        size = sum(each.bytes for each in self.classes)
        lines = [
            f"{self.folder}: {len(self.classes)} classes in {self.visits} visits",
            f"  {self._model()}, method {self.method}"
            + (
                ""
                if self.input_shape is None
                else f", inputs {self.input_type} {list(self.input_shape)}"
            ),
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
            lines.append(f"  a visit is not finished: {self.unfinished}")
        width = max((len(each.name) for each in self.classes), default=0)
        lines += [
            f"    {each.name:<{width}}  {each.seen:>7,} seen  {each.kept:>6,} kept  "
            f"{_size(each.bytes):>8}"
            + ("" if each.accuracy is None else f"  {each.accuracy:5.1f} % right")
            for each in self.classes
        ]
        return "\n".join(lines)

    def _model(self) -> str:
        if self.head == "net":
            return f"net {self.net}" + ("" if self.encoder is None else f" on {self.encoder}")
        return f"head {self.head}" + ("" if self.encoder is None else f" on {self.encoder}")

    def _repr_html_(self) -> str:
        about, *_ = str(self).splitlines()
        rows = [
            (
                each.name,
                each.seen,
                each.kept,
                _size(each.bytes),
                "" if each.accuracy is None else f"{each.accuracy:.1f}",
            )
            for each in self.classes
        ]
        head = ("class", "seen", "kept", "size", "right (%)")
        return f"<p>{html.escape(about)}</p>{html_table(head, rows)}"


def summarise(folder: AnyPath) -> Summary:
    """The summary of the learner in a folder. Raises LearnerError."""
    return summary(LearnerFolder.open(Path(folder).expanduser()))


def summary(folder: LearnerFolder) -> Summary:
    """The summary of a learner. Raises LearnerError."""
    manifest = folder.manifest
    data = manifest.data
    seen: Counter[str] = Counter()
    for visit in manifest.history:
        seen.update(visit.samples)
    kept = _kept(folder)
    sample_bytes = 0 if data is None else data.kept.sample_bytes
    accuracy = manifest.history[-1].accuracy if manifest.history else {}
    starts = [*(each.visits for each in manifest.earlier), len(manifest.history)]
    return Summary(
        folder=str(folder.path),
        net=manifest.settings.net if data is None else data.net,
        encoder=None if data is None or data.encoder is None else data.encoder.name,
        head=manifest.head,
        method=manifest.settings.method,
        classes=tuple(
            ClassSummary(
                name, seen[name], kept[name], kept[name] * sample_bytes, accuracy.get(name)
            )
            for name in manifest.known
        ),
        visits=len(manifest.history),
        unfinished=_unfinished(folder.path),
        settings=manifest.settings.model_dump(mode="json"),
        effective=_effective(manifest),
        choice=manifest.history[-1].choice if manifest.history else None,
        calibration=manifest.calibration,
        generation=manifest.generation,
        earlier=tuple(manifest.history[start].name for start in starts[:-1]),
        input_shape=None if data is None else data.inputs.shape,
        input_type=None if data is None else data.inputs.dtype,
        disk=_disk(folder.path),
    )


def _kept(folder: LearnerFolder) -> Counter[str]:
    """The samples in memory of each class."""
    manifest = folder.manifest
    if not manifest.known:
        return Counter()
    state = folder.read_state()
    labels = [*state[LABELS].tolist()]
    if MEMORY_LABELS in state:
        labels += [label for label in state[MEMORY_LABELS].tolist() if label != EMPTY]
    return Counter(str(manifest.classes[label]) for label in labels)


def _unfinished(folder: Path) -> str | None:
    try:
        begun = staging.unfinished(folder / staging.VISIT)
    except LearnerError as error:
        return f"({error})"
    return None if begun is None else begun.name


def _effective(manifest: Manifest) -> dict[str, Any]:
    settings, data = manifest.settings, manifest.data
    if names_own_code(settings.method) or not settings.trains(
        features=data is not None and data.features is not None
    ):
        return {}
    method = find_method(AUTO_METHOD if settings.method == AUTO else settings.method)
    replayed, held_out = places(
        settings.memory, 1 if manifest.data is None else manifest.data.kept.sample_bytes
    )
    config = trial_config(settings, method, replayed, settings.net if data is None else data.net)
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
            path = Path(root, name)
            kind = "visit" if Path(root) != folder else name.partition("-")[0].partition(".")[0]
            try:
                sizes[kind] += path.lstat().st_size
            except FileNotFoundError:  # another process has removed it
                continue
    sizes["total"] = sum(sizes.values())
    return dict(sizes)


def _size(count: int) -> str:
    for factor, unit in _UNITS:
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} B"
