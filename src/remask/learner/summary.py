"""What a learner has learnt and stores."""

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rich.filesize import decimal

from remask.errors import counted
from remask.files import AnyPath
from remask.learner.folder import HELD_LABELS, LearnerFolder, memory_of
from remask.learner.manifest import DataNote
from remask.learner.results import Calibration, Choice, Shown, listed
from remask.learner.settings import LearnerError, LearnerSettings


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
class Summary(Shown):
    """Summary of a learner."""

    folder: str
    classes: tuple[ClassSummary, ...]
    visits: int
    unfinished: str | None
    """The name of an unfinished visit."""
    head: str
    """`net`, or a head in closed form."""
    data: DataNote | None
    """The inputs, the encoder and the net, which the first visit decides."""
    settings: LearnerSettings
    choice: Choice | None
    """Settings that the last visit chose."""
    calibration: Calibration | None
    generation: int
    earlier: tuple[str, ...]
    """The visits that `undo` can take back, latest last."""
    disk: dict[str, int]
    """Bytes per kind of file, and `total`."""

    def __str__(self) -> str:
        kept, size = (sum(getattr(own, n) for own in self.classes) for n in ("kept", "bytes"))
        known, net = counted(len(self.classes), "class"), (self.data or self.settings).net
        model = f"net {net}" if self.head == "net" else f"head {self.head}"
        if self.data and self.data.encoder:
            model += f" on {self.data.encoder.name}"
        inputs = f", inputs: {self.data.inputs}" if self.data else ""
        settings = self.settings.model_dump(mode="json", exclude_none=True)
        disk = f"{decimal(self.disk['total'])}, of which samples {decimal(self.disk['samples'])}"
        lines = [
            f"{self.folder}: {known} in {counted(self.visits, 'visit')}",
            f"  {model}, method {self.settings.method}{inputs}",
            f"  memory: {counted(kept, 'sample')}, with those held out, {decimal(size)} "
            f"(setting: {self.settings.memory})",
            f"  on disk: {disk}",
            f"  generation {self.generation}; `undo` can take back: "
            f"{listed(self.earlier[::-1]) or 'nothing'}",
            f"  settings: {', '.join(f'{name} {value}' for name, value in settings.items())}",
        ]
        if self.choice is not None:
            lines.append(f"  last visit: {self.choice}")
        if self.calibration is not None:
            lines.append(f"  temperature {self.calibration.temperature:.2f}: {self.calibration}")
        if self.unfinished is not None:
            lines.append(f"  unfinished visit: {self.unfinished}")
        width = max((len(each.name) for each in self.classes), default=0)
        for each in self.classes:
            right = "" if each.accuracy is None else f"  {each.accuracy:5.1f} % right"
            lines.append(
                f"    {each.name:<{width}}  {each.seen:>7,} learnt  {each.kept:>6,} kept  "
                f"{decimal(each.bytes):>10}{right}"
            )
        return "\n".join(lines)


def summarise(folder: AnyPath) -> Summary:
    """Return the summary of the learner in a folder. Raises LearnerError."""
    return summary(LearnerFolder.open(Path(folder).expanduser()))


def summary(folder: LearnerFolder) -> Summary:
    """Return the summary of a learner. Raises LearnerError."""
    manifest, history = folder.manifest, folder.manifest.history
    last = history[-1] if history else None
    right = last.accuracy if last else {}
    sample_bytes = manifest.data.kept.sample_bytes if manifest.data else 0
    seen, kept, disk = Counter[str](), Counter[str](), Counter[str]()
    for visit in history:
        seen.update(visit.samples)
    if manifest.known:
        state = folder.read_state()
        labels = [*state[HELD_LABELS].tolist(), *memory_of(state)[1].tolist()]
        kept.update(str(manifest.classes[label]) for label in labels)
    for path in folder.path.rglob("*"):
        kind = path.relative_to(folder.path).parts[0].partition("-")[0].partition(".")[0]
        with suppress(FileNotFoundError):  # another process has removed it
            disk[kind] += path.lstat().st_size * path.is_file()
    try:
        note = folder.visit.note()
        unfinished = None if note is None else note.name
    except LearnerError as error:
        unfinished = f"({error})"
    return Summary(
        folder=str(folder.path),
        classes=tuple(
            ClassSummary(name, seen[name], kept[name], kept[name] * sample_bytes, right.get(name))
            for name in manifest.known
        ),
        visits=len(history),
        unfinished=unfinished,
        head=manifest.head,
        data=manifest.data,
        settings=manifest.settings,
        choice=None if last is None else last.choice,
        calibration=manifest.calibration,
        generation=manifest.generation,
        earlier=tuple(history[each.visits].name for each in manifest.earlier),
        disk={"samples": 0, **disk, "total": disk.total()},
    )
