"""Evaluations: accuracy, confusions and calibration on samples whose classes are given."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from remask.learner.choosing import calibration_error, per_class
from remask.learner.predictions import Abstention, Predictions, UnknownTest
from remask.learner.results import Shown, listed
from remask.learner.scoring import Rated

_MOST_COLUMNS = 20  # of a confusion matrix that is printed
_MOST_CONFUSIONS = 10


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


def evaluate(
    scores: Tensor,
    names: Sequence[str],
    classes: Sequence[str],
    predicted: Predictions,
    distances: Tensor | None = None,
) -> Evaluation:
    """Compare scores [n, C] over `classes`, and `predicted`, with the true classes `names`.

    `distances` [n] from known classes are given if samples were tested for being unknown.
    """
    column_of = {name: column for column, name in enumerate(classes)}
    columns = torch.tensor([column_of.get(name, -1) for name in names], dtype=torch.int64)
    known = columns >= 0
    scores, truth = scores[known], columns[known]
    accuracy, counts = per_class(Rated(scores, truth), classes)
    best = scores.argmax(1)
    right = best == truth
    answered = torch.tensor([name is not None for name in predicted.names], dtype=torch.bool)[known]
    marked = torch.tensor(predicted.unknown, dtype=torch.bool)
    measured: dict[str, float] = {}
    if predicted.abstention is not None:
        measured |= {"coverage": _percent(answered), "accuracy_answered": _percent(right[answered])}
    if predicted.unknown_test is not None:
        measured |= {"false_alarms": _percent(marked[known]), "detected": _percent(marked[~known])}
    if distances is not None and bool(known.any()) and not bool(known.all()):
        measured["auroc"] = auroc(distances[known], distances[~known])
    return Evaluation(
        accuracy=_percent(right),
        per_class=accuracy,
        counts=counts,
        ece=calibration_error(scores, truth),
        confusion=confusion_of(truth.tolist(), best.tolist(), classes),
        unknown_classes=dict(sorted(Counter(n for n in names if n not in column_of).items())),
        abstention=predicted.abstention,
        unknown_test=predicted.unknown_test,
        **measured,
    )


def confusion_of(
    truth: Sequence[int], predicted: Sequence[int], classes: Sequence[str]
) -> dict[str, dict[str, int]]:
    """Count samples by true and predicted class, given as positions in `classes`."""
    found: dict[str, dict[str, int]] = {}
    for (true, own), count in sorted(Counter(zip(truth, predicted, strict=True)).items()):
        found.setdefault(classes[true], {})[classes[own]] = count
    return found


def _percent(chosen: Tensor) -> float:
    """Return the percentage of [n] that is true; NaN if there are none."""
    return 100 * float(chosen.double().mean()) if len(chosen) else math.nan


def auroc(known: Tensor, unknown: Tensor) -> float:
    """Compute the probability that an unknown sample has a larger distance than a known one."""
    known = known.sort().values
    below = torch.searchsorted(known, unknown)
    not_above = torch.searchsorted(known, unknown, right=True)
    return float((below + not_above).double().sum() / (2 * len(known) * len(unknown)))
