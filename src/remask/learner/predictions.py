"""Results of `predict` and `evaluate`; `str()` of them is for people."""

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt
from torch import Tensor

from remask.files import AnyPath
from remask.learner.results import Shown, listed
from remask.outputs import write_output

_MOST_NAMED = 6  # classes in a repr
_MOST_COLUMNS = 20  # of a confusion matrix that is printed
_MOST_CONFUSIONS = 10


@dataclass(frozen=True)
class Abstention:
    """The confidence that a wanted accuracy needs, measured on held-out samples."""

    wanted: float
    """Share of answers that shall be right."""
    confidence: float | None
    """The lowest probability at which this is so; None if no confidence reaches it."""
    coverage: float
    """Share of held-out samples with at least this confidence; every class weighs the same."""
    best: float
    """The highest accuracy that any confidence reaches, counting one more wrong answer."""
    held_out: int
    """Number of held-out samples."""

    def __str__(self) -> str:
        wanted, samples = f"{100 * self.wanted:g} % accuracy", f"{self.held_out} held-out samples"
        needed = math.ceil(self.wanted / (1 - self.wanted) - 1e-9)
        if self.confidence is not None:
            return (
                f"on {samples} {wanted} needs a confidence of {self.confidence:.2f}, which covers "
                f"{100 * self.coverage:.0f} %"
            )
        if self.held_out < needed:
            return (
                f"{wanted} cannot be measured on {samples}, it needs {needed}, so no sample is "
                f"answered: learn with a larger memory"
            )
        return (
            f"{wanted} is not reached on {samples} at any confidence (at most "
            f"{100 * self.best:.1f} %), so no sample is answered"
        )


@dataclass(frozen=True)
class UnknownTest:
    """The distance from all known classes above which a sample is marked as unknown."""

    rate: float
    """Share of samples of known classes that are marked by mistake."""
    threshold: float
    """Relative Mahalanobis distance in feature space."""
    held_out: int
    """Number of held-out samples that the threshold was calibrated on."""

    def __str__(self) -> str:
        return (
            f"about {100 * self.rate:g} % of samples of known classes are marked as unknown by "
            f"mistake, calibrated on {self.held_out} held-out samples"
        )


@dataclass(frozen=True)
class Prediction:
    """The answer for one sample."""

    name: str | None
    """The most probable class; None if the learner abstains, or if the sample is unknown."""
    probability: float
    """Of the most probable class, whether it is named or not."""
    top: tuple[tuple[str, float], ...]
    """The `top` most probable classes with their probabilities."""
    source: str | None = None
    """The file it was read from, if any."""
    unknown: bool = False
    """Whether the sample resembles no known class; always False unless this was asked for."""

    @property
    def shown(self) -> str:
        """The answer as text: a class, "not sure" or "unknown"."""
        return self.name or ("unknown" if self.unknown else "not sure")

    def __str__(self) -> str:
        shares = [f"{name} {100 * share:.1f} %" for name, share in self.top]
        return ", ".join(shares) if self.name is not None else f"{self.shown} ({shares[0]})"


@dataclass(frozen=True, repr=False)
class Predictions(Sequence[Prediction]):
    """The answers for samples, in their order."""

    each: tuple[Prediction, ...]
    abstention: Abstention | None = None
    """When the learner abstains, if `abstain` was given."""
    unknown_test: UnknownTest | None = None
    """When a sample is unknown, if `unknown` was given."""

    @classmethod
    def of(
        cls,
        scores: Tensor,
        names: Sequence[str],
        sources: Sequence[str] | None = None,
        top: int = 1,
        abstention: Abstention | None = None,
        unknown_test: UnknownTest | None = None,
        distances: Tensor | None = None,
    ) -> "Predictions":
        """Make predictions from scores [n, C]; `unknown_test` compares `distances` [n]."""
        shares, columns = scores.softmax(dim=1).topk(min(top, len(names)), dim=1)
        least = 0.0
        if abstention is not None:
            least = math.inf if abstention.confidence is None else abstention.confidence
        unknown = [False] * len(scores)
        if unknown_test is not None and distances is not None:
            unknown = (distances > unknown_test.threshold).tolist()
        each = []
        for number, (own, chosen) in enumerate(zip(shares.tolist(), columns.tolist(), strict=True)):
            best = tuple((names[column], share) for column, share in zip(chosen, own, strict=True))
            sure = best[0][1] >= least and not unknown[number]
            source = None if sources is None else sources[number]
            name = best[0][0] if sure else None
            each.append(Prediction(name, best[0][1], best, source, unknown[number]))
        return cls(tuple(each), abstention, unknown_test)

    @overload
    def __getitem__(self, index: int) -> Prediction: ...
    @overload
    def __getitem__(self, index: slice) -> "Predictions": ...
    def __getitem__(self, index: int | slice) -> "Prediction | Predictions":
        if isinstance(index, slice):
            return Predictions(self.each[index], self.abstention, self.unknown_test)
        return self.each[index]

    def __len__(self) -> int:
        return len(self.each)

    @property
    def names(self) -> list[str | None]:
        """The class of each sample; None where the learner abstains or the sample is unknown."""
        return [prediction.name for prediction in self.each]

    @property
    def probabilities(self) -> list[float]:
        """The probability of the most probable class of each sample."""
        return [prediction.probability for prediction in self.each]

    @property
    def unknown(self) -> list[bool]:
        """Whether each sample resembles no known class."""
        return [prediction.unknown for prediction in self.each]

    @property
    def notes(self) -> list[str]:
        """One sentence each about abstaining and unknown samples, if they were asked for."""
        notes = []
        if self.abstention is not None:
            answered = len(self) - self.names.count(None)
            notes.append(f"answered {answered} of {len(self)}; {self.abstention}")
        if self.unknown_test is not None:
            notes.append(f"{sum(self.unknown)} of {len(self)} unknown; {self.unknown_test}")
        return notes

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return a plain dict per sample."""
        return [asdict(prediction) for prediction in self.each]

    def to_json(self, path: AnyPath | None = None) -> str:
        """Return a JSON object with `predictions`, `abstain` and `unknown`; also write it."""
        tests = {"abstain": self.abstention, "unknown": self.unknown_test}
        found = {name: None if test is None else asdict(test) for name, test in tests.items()}
        text = json.dumps({"predictions": self.to_dicts(), **found}, indent=1)
        return _written(path, text + "\n")

    def to_csv(self, path: AnyPath | None = None) -> str:
        """Return a line per sample, with its most probable classes; also write it to `path`."""
        stream = io.StringIO()
        table = csv.writer(stream, lineterminator="\n")
        most = max((len(prediction.top) for prediction in self.each), default=1)
        more = [f"{kind}_{n}" for n in range(2, most + 1) for kind in ("name", "probability")]
        tested = self.unknown_test is not None
        table.writerow(["source", "name", "probability", *["unknown"] * tested, *more])
        for source, own in self._labelled():
            others = [value for pair in own.top[1:] for value in pair]
            marked = [int(own.unknown)] * tested
            table.writerow([source, own.name or "", own.probability, *marked, *others])
        return _written(path, stream.getvalue())

    def _labelled(self) -> Iterator[tuple[str | int, Prediction]]:
        for number, own in enumerate(self.each):
            yield number if own.source is None else own.source, own

    def __repr__(self) -> str:
        found = Counter(prediction.shown for prediction in self.each).most_common(_MOST_NAMED)
        shown = [f"{count} {name}" for name, count in found]
        return f"<Predictions of {len(self)} samples: {listed(shown)}>"

    def __str__(self) -> str:
        return "\n".join(f"{source}: {own}" for source, own in self._labelled())


def _written(path: AnyPath | None, text: str) -> str:
    if path is not None:
        write_output(Path(path), text.encode())
    return text


@dataclass(frozen=True, repr=False)
class Evaluation(Shown):
    """Accuracy and calibration on samples whose classes are given, in percent."""

    accuracy: float
    """On all samples of known classes; NaN if there are none."""
    per_class: dict[str, float]
    """Accuracy of each known class that has samples."""
    counts: dict[str, int]
    """Samples of each known class."""
    ece: float
    """The expected calibration error on samples of known classes; NaN if there are none."""
    confusion: dict[str, dict[str, int]] = field(default_factory=dict)
    """Samples by true class, then by predicted class; pairs without samples are left out."""
    unknown_classes: dict[str, int] = field(default_factory=dict)
    """Samples of classes that the learner does not know; no other figure includes them."""
    abstention: Abstention | None = None
    """When the learner abstains, if `abstain` was given."""
    coverage: float | None = None
    """Percent of samples of known classes that are answered, if `abstain` was given."""
    accuracy_answered: float | None = None
    """Accuracy on those; NaN if there are none."""
    unknown_test: UnknownTest | None = None
    """When a sample is unknown, if `unknown` was given."""
    false_alarms: float | None = None
    """Percent of the samples of known classes that are marked as unknown."""
    detected: float | None = None
    """Percent of the samples of unknown classes that are marked as unknown."""
    auroc: float | None = None
    """How well the distance separates samples of unknown classes from known ones, 0 to 1."""

    @property
    def samples(self) -> int:
        """Number of samples of known classes."""
        return sum(self.counts.values())

    @property
    def classes(self) -> list[str]:
        """Rows and columns of the confusion matrix: classes with samples, then others named."""
        named = [name for row in self.confusion.values() for name in row]
        return list(dict.fromkeys([*self.counts, *named]))

    def confusion_matrix(self) -> npt.NDArray[np.int64]:
        """Return the samples [true class, predicted class], in the order of `classes`."""
        classes = self.classes
        rows = [[self.confusion.get(true, {}).get(own, 0) for own in classes] for true in classes]
        return np.array(rows, np.int64).reshape(len(classes), len(classes))

    def confusions(self) -> list[tuple[str, str, int]]:
        """Return (true class, predicted class, samples) of mistakes, the most frequent first."""
        pairs = ((true, *pair) for true, row in self.confusion.items() for pair in row.items())
        return sorted((each for each in pairs if each[0] != each[1]), key=lambda each: -each[2])

    def __repr__(self) -> str:
        return f"<Evaluation: {self._right()}>"

    def __str__(self) -> str:
        width = max(map(len, self.per_class), default=0)
        per_class = [
            f"  {name:<{width}}  {share:5.1f} % of {self.counts[name]}"
            for name, share in self.per_class.items()
        ]
        return "\n".join([self._right(), *per_class, *self._confused(), *self._notes()])

    def _right(self) -> str:
        if not self.counts:
            return "no sample of a class that the learner knows"
        return (
            f"{self.accuracy:.1f} % of {self.samples} samples right, expected calibration error "
            f"{self.ece:.1f} %"
        )

    def _confused(self) -> list[str]:
        """Return the confusion matrix if it is small, or the most frequent confusions."""
        if not (wrong := self.confusions()):
            return []
        classes = self.classes
        if len(classes) > _MOST_COLUMNS:
            return ["most frequent confusions (true class -> predicted class):"] + [
                f"  {true} -> {named}: {count} of {self.counts[true]}"
                for true, named, count in wrong[:_MOST_CONFUSIONS]
            ]
        matrix, width = self.confusion_matrix(), max(map(len, classes))
        cell = max(len(str(len(classes))), len(str(matrix.max()))) + 1
        numbers = "".join(f"{number + 1:>{cell}}" for number in range(len(classes)))
        lines = ["confusion matrix (a row per true class; columns are predicted classes):"]
        lines.append(f"  {'':{width + 3}}{numbers}")
        for number, (true, counts) in enumerate(zip(classes, matrix.tolist(), strict=True)):
            row = "".join(f"{count or '.':>{cell}}" for count in counts)
            lines.append(f"  {number + 1:>2} {true:<{width}}{row}")
        return lines

    def _notes(self) -> list[str]:
        notes = []
        if self.unknown_classes:
            shown = [f"{name} ({count})" for name, count in self.unknown_classes.items()]
            notes.append(
                f"not counted: {sum(self.unknown_classes.values())} samples of {len(shown)} "
                f"classes that the learner does not know: {listed(shown)}"
            )
        if self.abstention is not None and self.coverage is not None:
            right = self.accuracy_answered
            share = "" if not self.coverage else f", of which {right:.1f} % are right"
            notes.append(f"answered {self.coverage:.1f} %{share}; {self.abstention}")
        if self.unknown_test is not None:
            shares = (
                (self.counts, self.false_alarms, ""),
                (self.unknown_classes, self.detected, "un"),
            )
            parts = [
                f"{share:.1f} % of samples of {un}known classes" for of, share, un in shares if of
            ]
            separated = "" if self.auroc is None else f" (AUROC {self.auroc:.3f})"
            notes.append(
                f"marked as unknown: {' and '.join(parts)}{separated}; {self.unknown_test}"
            )
        return notes
