"""What visits, forgetting and undoing return; `str()` of it is for people."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from remask.data.classes import checked_name
from remask.errors import DataError, counted

_NAMED = 5  # classes in a sentence
_BY_CLASS = ("samples", "before", "accuracy", "held_out")  # fields of a visit


def _stored(name: str) -> str:
    try:
        return checked_name(name, "a class or visit")
    except DataError as error:
        raise ValueError(str(error)) from None


StoredName = Annotated[str, AfterValidator(_stored)]
"""The name of a class or visit in a file of a learner."""
HeadName = Literal["net", "ncm", "slda", "ridge"]
"""What predicts: a trained net, or a head in closed form."""


class Shown:
    """Base class of results that a notebook shows as their text."""

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


class Record(BaseModel):
    """Base class of what is stored in the files of a learner."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def changed(self, **changes: Any) -> Self:
        """Return a copy with other values of some fields, which are not validated."""
        return self.model_copy(update=changes)


class Choice(Record):
    """The settings that a visit was learnt with, and why they were chosen."""

    head: HeadName = "net"
    mask: str | None = Field(None, description='"none", "-inf" or a number')
    fade: float = 0.0
    fade_power: float = 1.0
    lr: float | None = None
    why: str

    def __str__(self) -> str:
        if self.head != "net" or self.mask is None or self.lr is None:
            return f"head {self.head}: {self.why}"
        fading = f"{self.fade:g}" if self.fade_power == 1 else f"{self.fade:g}^{self.fade_power:g}"
        return f"m = {self.mask}, fade {fading}, learning rate {self.lr:g}: {self.why}"


class Calibration(Record):
    """The temperature that scores are divided by, fitted to held-out samples."""

    temperature: float
    ece_before: float = Field(description="expected calibration error at temperature 1, in percent")
    ece_after: float = Field(description="the same at this temperature")
    samples: int = Field(description="number of held-out samples")

    def __str__(self) -> str:
        return (
            f"expected calibration error {self.ece_before:.1f} % -> {self.ece_after:.1f} %, on "
            f"{self.samples} held-out samples"
        )


class Visit(Shown, Record):
    """Result of one call of `learn`. Accuracies are percentages on held-out samples."""

    name: StoredName
    number: int = Field(description="counted from 1")
    finished: str = Field(description="when, in UTC, as ISO 8601")
    seconds: float
    steps: int
    epochs: int
    samples: dict[StoredName, int] = Field(description="samples of each class learnt from")
    new_classes: tuple[StoredName, ...]
    before: dict[StoredName, float] = Field(description="accuracy per known class before the visit")
    accuracy: dict[StoredName, float] = Field(description="accuracy per class after the visit")
    held_out: dict[StoredName, int] = Field(description="held-out samples per class")
    choice: Choice
    calibration: Calibration | None = None
    fingerprint: str | None = Field(
        description="SHA-256 of the samples and their classes; None once one was forgotten"
    )
    repeated: bool = Field(
        False, description="whether it was learnt by an earlier call", exclude=True
    )

    def without(self, name: str) -> "Visit":
        """Return this visit without a forgotten class.

        If it was the only class, everything but number, date and settings is removed.
        """
        update: dict[str, Any] = {
            field: {own: value for own, value in getattr(self, field).items() if own != name}
            for field in _BY_CLASS
        }
        update["new_classes"] = tuple(own for own in self.new_classes if own != name)
        if name in self.samples:
            update["fingerprint"] = None
        if self.samples.keys() == {name}:
            why = self.choice.changed(why="its classes were forgotten")
            update |= {field: {} for field in _BY_CLASS}
            update |= {"name": "(forgotten)", "choice": why, "calibration": None}
            update |= {"seconds": 0.0, "steps": 0, "epochs": 0}
        return self.changed(**update)

    def renamed(self, old: str, new: str) -> "Visit":
        """Return this visit with another name for a class.

        If it has both names, counts are added, and accuracies are averaged over samples.
        """
        update: dict[str, Any] = {}
        for field in _BY_CLASS:
            by_name = getattr(self, field)
            update[field] = {new if own == old else own: value for own, value in by_name.items()}
            if {old, new} <= by_name.keys():
                total = by_name[old] + by_name[new]
                if field in ("before", "accuracy"):
                    weights = [self.held_out[own] or 1 for own in (old, new)]
                    total = weights[0] * by_name[old] + weights[1] * by_name[new]
                    total /= sum(weights)
                update[field][new] = total
        names = (new if own == old else own for own in self.new_classes)
        return self.changed(**update, new_classes=tuple(dict.fromkeys(names)))

    @property
    def mean(self) -> float | None:
        """The accuracy after the visit, averaged over classes."""
        return sum(self.accuracy.values()) / len(self.accuracy) if self.accuracy else None

    @property
    def lost(self) -> float | None:
        """Percentage points lost on average on the classes known before; None if none were."""
        drops = [value - self.accuracy[name] for name, value in self.before.items()]
        return sum(drops) / len(drops) if drops else None

    def __repr__(self) -> str:
        return f"<Visit {self.number} {self}>"

    def __str__(self) -> str:
        return f"{self.name}: {self.summary}"

    @property
    def summary(self) -> str:
        """What was learnt, and what it cost, in one line."""
        if not self.samples:
            return "all its classes were forgotten"
        if self.repeated:
            return f"already learnt on {self.finished[:10]}; nothing changed"
        learnt, new, total = [], len(self.new_classes), sum(self.samples.values())
        if new:
            learnt.append(f"{counted(new, 'new class')} ({listed(self.new_classes)})")
        if again := len(self.samples) - new:
            learnt.append(f"{counted(again, 'known class')} again")
        parts = [f"learnt {' and '.join(learnt)} from {counted(total, 'sample')}"]
        if self.lost is not None:
            points = f"{abs(self.lost):.1f} points"
            worst = max(self.before, key=lambda each: self.before[each] - self.accuracy[each])
            before, after = self.before[worst], self.accuracy[worst]
            change = f"lost {points}" if self.lost > 0 else f"gained {points}"
            if points == "0.0 points":
                change = "lost nothing on average" if after < before else "lost nothing"
            parts.append(f"old classes {change} on held-out samples")
            if after < before:
                parts.append(f"worst: {worst}, {before:.0f} -> {after:.0f}")
        right = [self.accuracy[name] for name in self.new_classes if name in self.accuracy]
        if right:
            parts.append(f"new classes: {sum(right) / len(right):.1f} % right")
        if unmeasured := [name for name in self.samples if name not in self.accuracy]:
            parts.append(f"too few samples to hold any out: {listed(unmeasured)}")
        return "; ".join(parts)


@dataclass(frozen=True)
class Forgotten:
    """Result of `forget`."""

    name: str
    samples: int
    """How many samples of the class were removed from the memory."""
    files: tuple[str, ...]
    """The files that were written again without it."""
    retrained: bool
    """Whether a new net was trained on the remaining memory."""
    exact: bool = False
    """Whether the head equals that of a learner that never saw the class: it was computed from the
    statistics of the other classes."""

    not_promised = (
        "The other weights of the net were trained on its samples and stay as they are, unless the "
        "net is retrained from the remaining memory. Backups, exports and copies of the folder are "
        "not touched, nor are blocks that a file system or an SSD keeps of removed files."
    )
    """What forgetting does not do."""

    def __str__(self) -> str:
        done = (
            f"forgot {self.name}: its output is zeroed and no longer used, {self.samples} samples "
            f"and what was stored with them are removed, and no file of the learner holds them. "
            f"Earlier generations are removed, so this cannot be undone."
        )
        if self.exact:
            return f"{done} The head equals that of a learner that never saw the class."
        if self.retrained:
            return f"{done} The net was trained again from the remaining memory."
        return f"{done} {self.not_promised}"


@dataclass(frozen=True)
class Undone:
    """Result of `undo`."""

    visit: str
    """The visit that was undone."""
    classes: tuple[str, ...]
    """The classes that are known now."""
    removed: tuple[str, ...]
    """The classes that are no longer known."""

    def __str__(self) -> str:
        removed = f"; no longer known: {listed(self.removed)}" if self.removed else ""
        return f"undid {self.visit}: {counted(len(self.classes), 'class')} known{removed}"


@dataclass(frozen=True)
class Progress:
    """Progress of a visit; `on_progress` is called with it after every step."""

    step: int
    steps: int
    """The maximum number of steps."""
    epoch: int
    """Counted from 1; 0 while features are computed."""
    resumed: bool
    """Whether the visit was started by an earlier call."""
    phase: Literal["encoding", "training"] = "training"
    """While encoding, steps are samples."""


@dataclass(frozen=True)
class Preprocessing:
    """From an image or array to what `Learner.net()` takes: `(raw * scale - mean) / std`."""

    input_shape: tuple[int, ...]
    """Of one raw input: (channels, height, width), (features,), or (length,) of token ids."""
    input_type: torch.dtype
    """uint8, float32 or int64. int64 inputs are passed on unchanged."""
    scale: float
    mean: tuple[float, ...] | None
    """Per channel, or per feature."""
    std: tuple[float, ...] | None
    resize: Literal["bilinear"] | None
    """How image files are brought to the size of `input_shape`; None: inputs are not images. Their
    EXIF orientation is applied, the centre of `input_shape`'s aspect ratio is cropped, and the crop
    is resized: `PIL.ImageOps.fit(image, (width, height), PIL.Image.Resampling.BILINEAR)`."""


def listed(names: Sequence[str]) -> str:
    """Return the first few names, for a sentence."""
    return ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")


def percent(value: float | None) -> str:
    """Return a percentage for a table; empty if there is none."""
    return "" if value is None else f"{value:.1f}"
