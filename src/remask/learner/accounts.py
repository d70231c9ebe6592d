"""What a learner tells: of a visit, of predictions, of an evaluation, of what it has forgotten.

Each is data for programs, and `str()` of it is for people.
"""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, overload

import torch
from pydantic import BaseModel, ConfigDict, Field

from remask.durable import AnyPath, write_output

_NAMED = 5  # so many classes are named in a sentence


class Choice(BaseModel):
    """The settings that a visit was learnt with, and why they were chosen."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    mask: str = Field(description='"none", "-inf" or a number')
    fade: float
    fade_power: float = 1.0
    lr: float
    why: str

    def __str__(self) -> str:
        fading = f"{self.fade:g}" if self.fade_power == 1 else f"{self.fade:g}^{self.fade_power:g}"
        return f"m = {self.mask}, fade {fading}, learning rate {self.lr:g}: {self.why}"


class Calibration(BaseModel):
    """How sure the learner may be: what its scores are divided by, and when to abstain."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    temperature: float = Field(gt=0, allow_inf_nan=False)
    ece_before: float = Field(description="expected calibration error in percent at temperature 1")
    ece_after: float = Field(description="the same at this temperature")
    threshold: float = Field(description="`predict(abstain=True)` names no class below it")
    samples: int = Field(description="the held-out samples that it was fitted to")


class Visit(BaseModel):
    """What one call of `learn` did. Accuracies are percentages, on samples that are held out."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    number: int = Field(description="counted from 1")
    finished: str = Field(description="when, in UTC, as ISO 8601")
    seconds: float
    steps: int
    epochs: int
    samples: dict[str, int] = Field(description="how many of each class were learnt from")
    new_classes: tuple[str, ...]
    before: dict[str, float] = Field(description="accuracy per known class, before the visit")
    accuracy: dict[str, float] = Field(description="accuracy per class, after the visit")
    held_out: dict[str, int] = Field(description="how many samples each class was measured on")
    choice: Choice
    calibration: Calibration | None = None
    fingerprint: str = Field(description="SHA-256 of the samples and their classes", repr=False)

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

    def __str__(self) -> str:
        parts = [f"{self.name}: learnt {self._learnt()}"]
        if self.lost is not None:
            points = f"{abs(self.lost):.1f} points"
            change = "lost nothing" if points == "0.0 points" else f"lost {points}"
            change = f"gained {points}" if self.lost <= -0.05 else change
            parts.append(f"old classes {change} on the held-out memory")
            name, before, after = self.worst or ("", 0.0, 0.0)
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
class Prediction:
    """What a learner says of one sample."""

    name: str | None
    """The most probable class; None if the learner abstains."""
    probability: float
    """Of the most probable class, whether it is named or not."""
    top: tuple[tuple[str, float], ...]
    """The most probable classes with their probabilities, as many as were asked for."""
    source: str | None = None
    """The file it was read from, if it was."""


@dataclass(frozen=True)
class Predictions(Sequence[Prediction]):
    """What a learner says of samples, in their order."""

    each: tuple[Prediction, ...]

    @overload
    def __getitem__(self, index: int) -> Prediction: ...
    @overload
    def __getitem__(self, index: slice) -> "Predictions": ...
    def __getitem__(self, index: int | slice) -> "Prediction | Predictions":
        if isinstance(index, slice):
            return Predictions(self.each[index])
        return self.each[index]

    def __len__(self) -> int:
        return len(self.each)

    def __iter__(self) -> Iterator[Prediction]:
        return iter(self.each)

    @property
    def names(self) -> list[str | None]:
        """The class of each sample; None where the learner abstains."""
        return [prediction.name for prediction in self.each]

    @property
    def probabilities(self) -> list[float]:
        """The probability of the most probable class of each sample."""
        return [prediction.probability for prediction in self.each]

    def to_dicts(self) -> list[dict[str, Any]]:
        """Plain dicts, one per sample."""
        return [asdict(prediction) for prediction in self.each]

    def to_json(self, path: AnyPath | None = None) -> str:
        """A JSON list with an object per sample; also written to `path`, if given."""
        return _written(json.dumps(self.to_dicts(), indent=1) + "\n", path)

    def to_csv(self, path: AnyPath | None = None) -> str:
        """A line per sample, with its most probable classes; also written to `path`, if given."""
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        most = max((len(prediction.top) for prediction in self.each), default=1)
        more = [f"{kind}_{n}" for n in range(2, most + 1) for kind in ("name", "probability")]
        table.writerow(["source", "name", "probability", *more])
        for number, prediction in enumerate(self.each):
            others = [value for pair in prediction.top[1:] for value in pair]
            source = number if prediction.source is None else prediction.source
            table.writerow([source, prediction.name or "", prediction.probability, *others])
        return _written(text.getvalue(), path)

    def __str__(self) -> str:
        return "\n".join(
            f"{number if prediction.source is None else prediction.source}: "
            + (
                ", ".join(f"{name} {100 * share:.1f} %" for name, share in prediction.top)
                if prediction.name is not None
                else f"not sure ({prediction.top[0][0]} {100 * prediction.probability:.1f} %)"
            )
            for number, prediction in enumerate(self.each)
        )


@dataclass(frozen=True)
class Evaluation:
    """How right a learner is about samples whose classes are known, in percent."""

    accuracy: float
    """Of all samples."""
    per_class: dict[str, float]
    counts: dict[str, int]
    """How many samples each class was measured on."""
    ece: float
    """The expected calibration error, in percent."""

    @property
    def samples(self) -> int:
        """How many samples it was measured on."""
        return sum(self.counts.values())

    def __str__(self) -> str:
        lines = [
            f"{self.accuracy:.1f} % of {self.samples} samples right, "
            f"expected calibration error {self.ece:.1f} %"
        ]
        width = max(map(len, self.per_class))
        lines += [
            f"  {name:<{width}}  {share:5.1f} % of {self.counts[name]}"
            for name, share in self.per_class.items()
        ]
        return "\n".join(lines)


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

    not_promised = (
        "The other weights of the net were shaped by its samples, too, and stay as they are; "
        "forget with retrain=True to train a new net from the remaining memory. Backups, exports "
        "and copies of the folder are not touched, nor are blocks that a file system or an SSD "
        "keeps of removed files."
    )
    """What forgetting does not do."""

    def __str__(self) -> str:
        done = (
            f"forgot {self.name}: its output is zeroed and no longer used, {self.samples} samples "
            f"and what was stored with them are removed, and no file of the learner holds them."
        )
        if self.retrained:
            return f"{done} The net was trained again from the remaining memory."
        return f"{done} {self.not_promised}"


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


def listed(names: Sequence[str]) -> str:
    """The first few names, for a sentence."""
    return ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")


def _written(text: str, path: AnyPath | None) -> str:
    if path is not None:
        write_output(Path(path), text.encode())
    return text
