"""Accuracy on samples whose classes are given, and the guards that reject a visit."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from remask.learner.calibration import auroc, calibration_error, class_weights
from remask.learner.predictions import Abstention, Predictions, UnknownTest
from remask.learner.results import html_table, listed, paragraphs
from remask.learner.settings import VisitRejectedError

MAX_DROP = 25.0
"""Points that a visit may cost earlier classes by default."""
_Z = 1.64  # guesses pass in one of 20 visits
_LEAST = 20  # held-out samples; fewer decide nothing
_MOST_COLUMNS = 20  # of a confusion matrix that is printed
_MOST_CONFUSIONS = 10


@dataclass(frozen=True, repr=False)
class Evaluation:
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
        """Samples [true class, predicted class], in the order of `classes`."""
        classes = self.classes
        rows = [[self.confusion.get(true, {}).get(own, 0) for own in classes] for true in classes]
        return np.array(rows, np.int64).reshape(len(classes), len(classes))

    def confusions(self) -> list[tuple[str, str, int]]:
        """(true class, predicted class, samples) of wrong answers, the most frequent first."""
        wrong = [
            (true, named, count)
            for true, row in self.confusion.items()
            for named, count in row.items()
            if true != named
        ]
        return sorted(wrong, key=lambda each: -each[2])

    def __repr__(self) -> str:
        return f"<Evaluation: {self._right()}>"

    def _repr_html_(self) -> str:
        notes = paragraphs([self._right(), *self._notes()])
        if len(self.classes) > _MOST_COLUMNS:
            return notes + html_table(
                ("true class", "predicted class", "samples"), self.confusions()
            )
        rows = [
            (true, f"{self.per_class[true]:.1f}", *(int(count) or "" for count in counts))
            for true, counts in zip(self.classes, self.confusion_matrix(), strict=True)
            if true in self.per_class
        ]
        return notes + html_table(("true class", "right (%)", *self.classes), rows)

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
        """Lines about wrong answers: the matrix if it is small, or the most frequent ones."""
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
            total = sum(self.unknown_classes.values())
            notes.append(
                f"not counted: {total} samples of {len(shown)} classes that the learner does not "
                f"know: {listed(shown)}"
            )
        if self.abstention is not None and self.coverage is not None:
            right = self.accuracy_answered
            share = "" if not self.coverage else f", of which {right:.1f} % are right"
            notes.append(f"answered {self.coverage:.1f} %{share}; {self.abstention}")
        if self.unknown_test is not None:
            parts = []
            if self.counts:
                parts.append(f"{self.false_alarms:.1f} % of samples of known classes")
            if self.unknown_classes:
                parts.append(f"{self.detected:.1f} % of samples of unknown classes")
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
    accuracy, counts = per_class(scores, truth, classes)
    best = scores.argmax(1)
    right = best == truth
    abstained, tested = predicted.abstention is not None, predicted.unknown_test is not None
    answered = torch.tensor([name is not None for name in predicted.names], dtype=torch.bool)[known]
    marked = torch.tensor(predicted.unknown, dtype=torch.bool)
    separated = None
    if distances is not None and bool(known.any()) and not bool(known.all()):
        separated = auroc(distances[known], distances[~known])
    return Evaluation(
        accuracy=_percent(right),
        per_class=accuracy,
        counts=counts,
        ece=calibration_error(scores, truth),
        confusion=confusion_of(truth.tolist(), best.tolist(), classes),
        unknown_classes=dict(sorted(Counter(n for n in names if n not in column_of).items())),
        abstention=predicted.abstention,
        coverage=_percent(answered) if abstained else None,
        accuracy_answered=_percent(right[answered]) if abstained else None,
        unknown_test=predicted.unknown_test,
        false_alarms=_percent(marked[known]) if tested else None,
        detected=_percent(marked[~known]) if tested else None,
        auroc=separated,
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
    """Percent of [n] that are true; NaN if there are none."""
    return 100 * float(chosen.double().mean()) if len(chosen) else math.nan


def per_class(
    scores: Tensor, truth: Tensor, names: Sequence[str]
) -> tuple[dict[str, float], dict[str, int]]:
    """Return the accuracy in percent and the number of samples of each class that has any."""
    right = (scores.argmax(1) == truth).double()
    counts = torch.bincount(truth, minlength=len(names)).tolist()
    sums = torch.bincount(truth, weights=right, minlength=len(names)).tolist()
    there = [column for column, count in enumerate(counts) if count]
    accuracy = {names[column]: 100 * sums[column] / counts[column] for column in there}
    return accuracy, {names[column]: counts[column] for column in there}


def check_chance(name: str, scores: Tensor, truth: Tensor, advice: str) -> None:
    """Raise VisitRejectedError if the accuracy on held-out samples is not above guessing.

    `scores` are [n, C] and `truth` [n]. Accuracy is averaged over classes; guessing gives 1 / C. It
    must be higher by 1.64 standard deviations of guessing. Nothing is raised with fewer than 20
    samples (those of larger classes count less), or if that is more than half of the way to 100 %.
    """
    classes = scores.shape[1]
    if classes < 2 or _effective(truth) < _LEAST:
        return
    weights = class_weights(truth)
    accuracy = float((weights * (scores.argmax(1) == truth)).sum())
    guess = 1 / classes
    noise = _Z * math.sqrt(guess * (1 - guess) * float(weights.square().sum()))
    if noise > (1 - guess) / 2 or accuracy > guess + noise:
        return
    raise VisitRejectedError(
        f"{name} was not committed: {100 * accuracy:.1f} % of {len(truth)} held-out samples are "
        f"right, and guessing among {classes} classes gives {100 * guess:.1f} ±{100 * noise:.1f} "
        f"%. The learner is as it was. {advice}"
    )


def check_drop(
    name: str,
    before: tuple[Tensor, Tensor],
    after: tuple[Tensor, Tensor],
    old: Sequence[int],
    max_drop: float,
    advice: str,
) -> None:
    """Raise VisitRejectedError if a visit costs earlier classes more than `max_drop` points.

    `before` and `after` are scores [n, C] and true columns [n] of held-out samples, by the learner
    without and with the visit. `old` are the columns of `after` that `before` has, in their order,
    and the samples of `before` are the first of `after` among those of old classes.

    The cost is the sum of two numbers, averaged over earlier classes. First, the points lost on
    their samples among earlier classes alone, so that a larger number of classes costs nothing.
    Second, the share of their samples that are predicted as a new class, minus the share of new
    samples that are predicted as an earlier one: mutual confusion costs nothing, but a preference
    for new classes does. The cost must exceed `max_drop` by 1.64 standard deviations. Nothing is
    raised with fewer than 20 samples of earlier classes.
    """
    columns = torch.tensor(list(old))
    scores, truth = after
    is_old = torch.isin(truth, columns)
    if _effective(before[1]) < _LEAST:
        return
    position = torch.full((scores.shape[1],), -1)
    position[columns] = torch.arange(len(columns))
    own, labels = scores[is_old], position[truth[is_old]]
    was_right = before[0].argmax(1) == before[1]
    is_right = own[:, columns].argmax(1) == labels
    taken = ~torch.isin(own.argmax(1), columns)
    weights = class_weights(labels)
    cost = weights * (was_right.double() - is_right.double() + taken.double())
    lost, variance = float(cost.sum()), float(cost.square().sum())
    new, new_truth = scores[~is_old], truth[~is_old]
    if len(new):
        back = class_weights(new_truth) * torch.isin(new.argmax(1), columns)
        lost -= min(float(back.sum()), float((weights * taken).sum()))
        variance += float(back.square().sum())
    drop, noise = 100 * lost, 100 * _Z * math.sqrt(variance)
    if drop - noise <= max_drop:
        return
    raise VisitRejectedError(
        f"{name} was not committed: it costs earlier classes {drop:.0f} ±{noise:.0f} points on "
        f"{len(labels)} held-out samples, and at most {max_drop:g} are allowed. The learner is as "
        f"it was. {advice}"
    )


def _effective(truth: Tensor) -> float:
    """The number of samples, where those of larger classes count less."""
    return 1 / float(class_weights(truth).square().sum()) if len(truth) else 0.0
