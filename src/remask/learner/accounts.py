"""The results of `learn`, `forget` and `undo`: data for programs; `str()` of them is for people."""

import html
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator

from remask.learner.names import StoredName

_NAMED = 5  # classes that a sentence names
_ROWS_SHOWN = 20  # of a table in a notebook
_FORGOTTEN = "(forgotten)"
_Percent = Annotated[float, Field(ge=0, le=100)]
_Count = Annotated[int, Field(ge=0, le=2**53)]


class Choice(BaseModel):
    """The settings that a visit was learnt with, and why they were chosen."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    head: Literal["net", "ncm", "slda", "ridge"] = Field(
        "net", description="what predicts: a net that was trained, or a head in closed form"
    )
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


class Calibration(BaseModel):
    """The temperature that scores are divided by, fitted to held-out samples."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    temperature: float = Field(ge=1e-3, le=1e3)
    ece_before: _Percent = Field(
        description="expected calibration error in percent at temperature 1"
    )
    ece_after: _Percent = Field(description="the same at this temperature")
    samples: _Count = Field(description="the held-out samples that it was fitted to")


class Visit(BaseModel):
    """What one call of `learn` did. Accuracies are percentages, on samples that are held out."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: StoredName
    number: int = Field(description="counted from 1", ge=1, le=2**53)
    finished: str = Field(
        description="when, in UTC, as ISO 8601", pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:+.Z-]+$"
    )
    seconds: float = Field(ge=0)
    steps: _Count
    epochs: _Count
    samples: dict[StoredName, _Count] = Field(description="samples of each class learnt from")
    new_classes: tuple[StoredName, ...]
    before: dict[StoredName, _Percent] = Field(
        description="accuracy per known class, before the visit"
    )
    accuracy: dict[StoredName, _Percent] = Field(description="accuracy per class, after the visit")
    held_out: dict[StoredName, _Count] = Field(description="samples each class was measured on")
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
        if not self.before.keys() <= self.accuracy.keys() or (
            self.accuracy.keys() != self.held_out.keys()
        ):
            raise ValueError("the visit was not measured on the same classes before and after")
        return self

    def without(self, name: str) -> "Visit":
        """The entry of this visit once a class is forgotten.

        If the class was among its samples, their fingerprint goes; if it was the only one, all but
        number, date and settings goes.
        """
        if name in self.samples and len(self.samples) == 1:
            return Visit(
                name=_FORGOTTEN,
                number=self.number,
                finished=self.finished,
                seconds=0,
                steps=0,
                epochs=0,
                samples={},
                new_classes=(),
                before={},
                accuracy={},
                held_out={},
                choice=self.choice.model_copy(update={"why": "its classes were forgotten"}),
                fingerprint=None,
            )

        def others(by_name: dict[str, Any]) -> dict[str, Any]:
            return {own: value for own, value in by_name.items() if own != name}

        return self.model_copy(
            update={
                "samples": others(self.samples),
                "before": others(self.before),
                "accuracy": others(self.accuracy),
                "held_out": others(self.held_out),
                "new_classes": tuple(own for own in self.new_classes if own != name),
                "fingerprint": None if name in self.samples else self.fingerprint,
            }
        )

    def renamed(self, old: str, new: str) -> "Visit":
        """The entry of this visit with another name of a class.

        If the visit has both names, counts add up, and accuracies are means over samples.
        """

        def summed(by_name: dict[str, int]) -> dict[str, int]:
            found: Counter[str] = Counter()
            for own, value in by_name.items():
                found[new if own == old else own] += value
            return dict(found)

        def averaged(by_name: dict[str, float]) -> dict[str, float]:
            if not {old, new} <= by_name.keys():
                return {new if own == old else own: value for own, value in by_name.items()}
            weights = {own: self.held_out[own] or 1 for own in (old, new)}
            mean = sum(weights[own] * by_name[own] for own in weights) / sum(weights.values())
            return {own: mean if own == new else by_name[own] for own in by_name if own != old}

        names = tuple(new if own == old else own for own in self.new_classes)
        return self.model_copy(
            update={
                "samples": summed(self.samples),
                "before": averaged(self.before),
                "accuracy": averaged(self.accuracy),
                "held_out": summed(self.held_out),
                "new_classes": tuple(dict.fromkeys(names)),
            }
        )

    @property
    def lost(self) -> float | None:
        """Percentage points lost on average on the classes known before; None if none were."""
        drops = [value - self.accuracy[name] for name, value in self.before.items()]
        return sum(drops) / len(drops) if drops else None

    @property
    def worst(self) -> tuple[str, float, float] | None:
        """The class that lost most: its name, its accuracy before, and after."""
        if not self.before:
            return None
        name = max(self.before, key=lambda each: self.before[each] - self.accuracy[each])
        return name, self.before[name], self.accuracy[name]

    def __repr__(self) -> str:
        return f"<Visit {self.number} {self}>"

    def _repr_html_(self) -> str:
        rows = [
            (name, self.samples.get(name, 0), _percent(self.before.get(name)), _percent(after))
            for name, after in self.accuracy.items()
        ]
        head = ("class", "samples", "before (%)", "after (%)")
        return f"<p>{html.escape(str(self))}</p>{html_table(head, rows)}"

    def __str__(self) -> str:
        if not self.samples:
            return f"{self.name}: all its classes were forgotten"
        if self.repeated:
            return f"{self.name}: learnt on {self.finished[:10]}; nothing was learnt again"
        parts = [f"{self.name}: learnt {self._learnt()}"]
        if self.lost is not None:
            points = f"{abs(self.lost):.1f} points"
            name, before, after = self.worst or ("", 0.0, 0.0)
            change = f"lost {points}" if self.lost > 0 else f"gained {points}"
            if points == "0.0 points":
                change = "lost nothing on average" if after < before else "lost nothing"
            parts.append(f"old classes {change} on the held-out memory")
            if after < before:
                parts.append(f"worst: {name}, {before:.0f} -> {after:.0f}")
        new = [self.accuracy[name] for name in self.new_classes if name in self.accuracy]
        if new:
            parts.append(f"new classes: {sum(new) / len(new):.1f} % right")
        return "; ".join(parts)

    def _learnt(self) -> str:
        new, total = len(self.new_classes), sum(self.samples.values())
        of = f"{total} sample{'s' * (total != 1)}"
        again = len(self.samples) - new
        parts = []
        if new:
            parts.append(f"{new} new class{'es' * (new != 1)} ({listed(self.new_classes)})")
        if again:
            parts.append(f"{again} known class{'es' * (again != 1)} again")
        return f"{' and '.join(parts)} from {of}"


@dataclass(frozen=True)
class Forgotten:
    """What was removed of a class, and what was not."""

    name: str
    samples: int
    """How many samples of it were removed from the memory."""
    files: tuple[str, ...]
    """The files that were written anew without it."""
    retrained: bool
    """Whether the net was trained again, from nothing, on what the memory holds."""
    exact: bool = False
    """Whether the learner is as if it had never seen the class: its head is computed from the
    statistics of the other classes."""

    not_promised = (
        "The other weights of the net were shaped by its samples as well and stay as they are, "
        "unless the net is retrained from the remaining memory. Backups, exports and copies of the "
        "folder are not touched, nor are blocks that a file system or an SSD keeps of removed "
        "files."
    )
    """What forgetting does not do."""

    def __str__(self) -> str:
        done = (
            f"forgot {self.name}: its output is zeroed and no longer used, {self.samples} samples "
            f"and what was stored with them are removed, and no file of the learner holds them. "
            f"Earlier generations are removed, so this cannot be undone."
        )
        if self.exact:
            return (
                f"{done} Its head is exactly that of a learner that never saw the class, since it "
                f"was computed again from the statistics of the others."
            )
        if self.retrained:
            return f"{done} The net was trained again from the remaining memory."
        return f"{done} {self.not_promised}"


@dataclass(frozen=True)
class Undone:
    """The visit that was undone, and what the learner knows without it."""

    visit: str
    classes: tuple[str, ...]
    """Those that are known now."""
    removed: tuple[str, ...]
    """Those that are not known any more."""

    def __str__(self) -> str:
        removed = f"; {listed(self.removed)} unknown again" if self.removed else ""
        now = f"{len(self.classes)} class{'es' * (len(self.classes) != 1)}"
        return f"undid {self.visit}: the learner knows {now} as before it{removed}"


@dataclass(frozen=True)
class Preprocessing:
    """From an image or array to what `Learner.net()` takes: `(raw * scale - mean) / std`."""

    input_shape: tuple[int, ...]
    """Of one raw input: (channels, height, width), (features,), or (length,) of token ids."""
    input_type: torch.dtype
    """uint8, float32 or int64. int64 inputs are passed on as they are."""
    scale: float
    mean: tuple[float, ...] | None
    """Per channel, or per feature."""
    std: tuple[float, ...] | None
    resize: Literal["bilinear"] | None
    """How image files are brought to the size of `input_shape`; None: inputs are not images. Their
    EXIF orientation is applied, the centre of `input_shape`'s aspect ratio is cropped, and the crop
    is resized: `PIL.ImageOps.fit(image, (width, height), PIL.Image.Resampling.BILINEAR)`."""

    @property
    def as_it_is(self) -> bool:
        """Whether `Learner.net()` takes raw inputs: token ids, or inputs of an encoder."""
        return self.input_type == torch.int64 or (self.scale == 1 and self.mean is None)


def html_table(head: Iterable[str], rows: Sequence[Sequence[object]]) -> str:
    """A table for a notebook, of the first rows."""

    def line(cells: Iterable[object], tag: str) -> str:
        shown = "".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in cells)
        return f"<tr>{shown}</tr>"

    body = "".join(line(row, "td") for row in rows[:_ROWS_SHOWN])
    more = len(rows) - _ROWS_SHOWN
    rest = f"<p>and {more} more</p>" if more > 0 else ""
    return f"<table>{line(head, 'th')}{body}</table>{rest}"


def listed(names: Sequence[str]) -> str:
    """The first few names, for a sentence."""
    return ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
