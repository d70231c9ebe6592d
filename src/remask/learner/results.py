"""What visits, forgetting and undoing return; `str()` of it is for people."""

import html
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Self, TypeVar

import torch
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from remask.data.classes import checked_name
from remask.errors import DataError

_NAMED = 5  # classes in a sentence
_ROWS_SHOWN = 20  # of a table in a notebook
_FORGOTTEN = "(forgotten)"
_Value = TypeVar("_Value")


def _stored(name: str) -> str:
    try:
        return checked_name(name, "a class or visit")
    except DataError as error:
        raise ValueError(str(error)) from None


StoredName = Annotated[str, AfterValidator(_stored)]
"""The name of a class or visit in a file of a learner."""
Count = Annotated[int, Field(ge=0, le=2**53)]
HeadName = Literal["net", "ncm", "slda", "ridge"]
"""What predicts: a trained net, or a head in closed form."""
_Percent = Annotated[float, Field(ge=0, le=100)]


class Record(BaseModel):
    """Base class of what is stored in the files of a learner."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Choice(Record):
    """The settings that a visit was learnt with, and why they were chosen."""

    head: HeadName = "net"
    mask: str | None = Field(None, description='"none", "-inf" or a number', max_length=40)
    fade: float = 0.0
    fade_power: float = 1.0
    lr: float | None = Field(None, gt=0)
    why: str = Field(max_length=10_000)

    def __str__(self) -> str:
        if self.head != "net" or self.mask is None or self.lr is None:
            return f"head {self.head}: {self.why}"
        fading = f"{self.fade:g}" if self.fade_power == 1 else f"{self.fade:g}^{self.fade_power:g}"
        return f"m = {self.mask}, fade {fading}, learning rate {self.lr:g}: {self.why}"


class Calibration(Record):
    """The temperature that scores are divided by, fitted to held-out samples."""

    temperature: float = Field(ge=1e-3, le=1e3)
    ece_before: _Percent = Field(description="expected calibration error at temperature 1")
    ece_after: _Percent = Field(description="the same at this temperature")
    samples: Count = Field(description="number of held-out samples")


class Visit(Record):
    """Result of one call of `learn`. Accuracies are percentages on held-out samples."""

    name: StoredName
    number: int = Field(description="counted from 1", ge=1, le=2**53)
    finished: str = Field(
        description="when, in UTC, as ISO 8601", pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:+.Z-]+$"
    )
    seconds: float = Field(ge=0)
    steps: Count
    epochs: Count
    samples: dict[StoredName, Count] = Field(description="samples of each class learnt from")
    new_classes: tuple[StoredName, ...]
    before: dict[StoredName, _Percent] = Field(
        description="accuracy per known class, before the visit"
    )
    accuracy: dict[StoredName, _Percent] = Field(description="accuracy per class, after the visit")
    held_out: dict[StoredName, Count] = Field(description="held-out samples per class")
    choice: Choice
    calibration: Calibration | None = None
    fingerprint: str | None = Field(
        description="SHA-256 of the samples and their classes; None once one was forgotten",
        pattern="^[0-9a-f]{64}$",
    )
    repeated: bool = Field(
        False, description="whether it was learnt by an earlier call", exclude=True
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        classes = self.accuracy.keys()
        if not self.before.keys() <= classes or classes != self.held_out.keys():
            raise ValueError("accuracies before and after the visit are of different classes")
        return self

    def without(self, name: str) -> "Visit":
        """Return this visit without a forgotten class.

        If it was the only class, everything but number, date and settings is removed.
        """
        only = self.samples.keys() == {name}

        def others(by_name: dict[str, _Value]) -> dict[str, _Value]:
            return {own: value for own, value in by_name.items() if own != name and not only}

        update = {
            "samples": others(self.samples),
            "before": others(self.before),
            "accuracy": others(self.accuracy),
            "held_out": others(self.held_out),
            "new_classes": tuple(own for own in self.new_classes if own != name),
            "fingerprint": None if name in self.samples else self.fingerprint,
        }
        if only:
            why = self.choice.model_copy(update={"why": "its classes were forgotten"})
            update |= {"name": _FORGOTTEN, "choice": why, "calibration": None}
            update |= {"seconds": 0.0, "steps": 0, "epochs": 0}
        return self.model_copy(update=update)

    def renamed(self, old: str, new: str) -> "Visit":
        """Return this visit with another name for a class.

        If it has both names, counts are added, and accuracies are averaged over samples.
        """

        def name(own: str) -> str:
            return new if own == old else own

        def summed(by_name: dict[str, int]) -> dict[str, int]:
            found: Counter[str] = Counter()
            for own, count in by_name.items():
                found[name(own)] += count
            return dict(found)

        def averaged(by_name: dict[str, float]) -> dict[str, float]:
            found = {name(own): value for own, value in by_name.items()}
            if {old, new} <= by_name.keys():
                first, second = (self.held_out[own] or 1 for own in (old, new))
                total = first * by_name[old] + second * by_name[new]
                found[new] = total / (first + second)
            return found

        return self.model_copy(
            update={
                "samples": summed(self.samples),
                "before": averaged(self.before),
                "accuracy": averaged(self.accuracy),
                "held_out": summed(self.held_out),
                "new_classes": tuple(dict.fromkeys(map(name, self.new_classes))),
            }
        )

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

    def _repr_html_(self) -> str:
        rows = [
            (name, self.samples.get(name, 0), percent(self.before.get(name)), percent(after))
            for name, after in self.accuracy.items()
        ]
        head = ("class", "samples", "before (%)", "after (%)")
        return paragraphs([str(self)]) + html_table(head, rows)

    def __str__(self) -> str:
        return f"{self.name}: {self.summary}"

    @property
    def summary(self) -> str:
        """What was learnt, and what it cost, in one line."""
        if not self.samples:
            return "all its classes were forgotten"
        if self.repeated:
            return f"already learnt on {self.finished[:10]}; nothing changed"
        new, total = len(self.new_classes), sum(self.samples.values())
        again, learnt = len(self.samples) - new, []
        if new:
            learnt.append(f"{new} new class{'es' * (new != 1)} ({listed(self.new_classes)})")
        if again:
            learnt.append(f"{again} known class{'es' * (again != 1)} again")
        parts = [f"learnt {' and '.join(learnt)} from {total} sample{'s' * (total != 1)}"]
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
        now = f"{len(self.classes)} class{'es' * (len(self.classes) != 1)}"
        return f"undid {self.visit}: {now} known{removed}"


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


def html_table(head: Iterable[str], rows: Sequence[Sequence[object]]) -> str:
    """Return an HTML table of the first rows, for a notebook."""

    def line(cells: Iterable[object], tag: str) -> str:
        shown = "".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in cells)
        return f"<tr>{shown}</tr>"

    body = "".join(line(row, "td") for row in rows[:_ROWS_SHOWN])
    more = len(rows) - _ROWS_SHOWN
    rest = f"<p>and {more} more</p>" if more > 0 else ""
    return f"<table>{line(head, 'th')}{body}</table>{rest}"


def paragraphs(lines: Iterable[str]) -> str:
    """Return lines of text as HTML, for a notebook."""
    return "".join(f"<p>{html.escape(line)}</p>" for line in lines)


def listed(names: Sequence[str]) -> str:
    """Return the first few names, for a sentence."""
    return ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")


def percent(value: float | None) -> str:
    """Return a percentage for a table; empty if there is none."""
    return "" if value is None else f"{value:.1f}"
