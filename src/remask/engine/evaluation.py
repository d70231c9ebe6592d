"""Evaluation: Class-IL and Task-IL accuracy, predictions and their confidence."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from remask.data.tasks import DataDescription, Subset
from remask.memory import StoredRows, fetch
from remask.metrics import CALIBRATION_BINS
from remask.record import Answers

_ROWS_AT_ONCE = 512  # a chunk whose activations stay in the cache
_COMPILED_ROWS = 4096  # compiled passes divide it themselves
_MOST_CLASSES = 100  # of a confusion matrix that is stored: it grows with their square
# The samples per class and points of curves are chosen for cost. With ten classes, 50 steps of a
# batch of 10 with 10 replayed samples cost about 3,000 forwards, and a measurement 150 of them.
_CURVE_SAMPLES, _MOST_PER_CLASS, _FEWEST_PER_CLASS = 250, 25, 5
_MOST_VALUES, _MOST_POINTS = 640, 128
"""Of one task: each of its points has a value for every task so far."""

Scores = Callable[[Tensor, int], Tensor]
"""A method's scores of the classes, [S, B, K], for inputs [B, *shape] that all trials share or
[S, B, *shape] per trial. With Class-IL, inputs of several tasks come together, with the number of
the latest one; a method without Class-IL gets the inputs of one task and its number."""


@dataclass(frozen=True, eq=False)
class _TestSet:
    """The test samples of a task."""

    inputs: Tensor | StoredRows
    """[N, *shape], perhaps with those of other tasks."""
    places: Tensor
    """int64 [n] for all trials, or [S, n]: the places of its samples among them."""
    labels: Tensor
    """int64 [n]."""
    classes: Tensor
    """bool [K]: those of the task."""


class Evaluator:
    """Measures a method's accuracy on the tasks of a stream, and stores it.

    With `per_class`, only the first samples of each class are used.
    """

    def __init__(
        self,
        data: DataDescription,
        trials: int,
        device: torch.device,
        *,
        per_class: int | None = None,
    ) -> None:
        self._device, self._per_class, self._classes = device, per_class, data.num_classes
        self._normalise = data.normaliser(device)
        self._sets: dict[int, _TestSet] = {}
        self.compiled: Callable[[Tensor, Tensor], Tensor] | None = None
        """If possible, the method's scores [S, B, K] of raw inputs in some places."""
        self.kept: list[tuple[Tensor, ...]] = []
        """The answers of the latest measurement, if it kept them."""
        # On the device, so that no step waits for it.
        self.accuracy = torch.zeros((trials, 2, 0, 0), dtype=torch.float64, device=device)
        """Class-IL and Task-IL accuracy in percent after R moments on T tasks: [S, 2, R, T]; NaN
        where not measured."""

    def add(self, task: int, classes: Tensor, inputs: Tensor | StoredRows, part: Subset) -> None:
        """Measure a task, of these classes bool [K], on the samples of a part that have them."""
        rows = classes.to(part.labels.device)[part.labels].nonzero().squeeze(-1)
        if self._per_class is not None:
            labels = part.labels[rows]
            each = [rows[labels == label][: self._per_class] for label in {*labels.tolist()}]
            rows = torch.cat(each).sort().values
        places = rows if part.places is None else part.places[..., rows]
        if isinstance(inputs, Tensor):
            inputs = inputs.to(self._device)
        tensors = (tensor.to(self._device) for tensor in (places, part.labels[rows], classes))
        self._sets[task] = _TestSet(inputs, *tensors)

    def grow(self, rows: int, tasks: int) -> None:
        """Make room for at least this many rows and tasks."""
        had_rows, had_tasks = self.accuracy.shape[2:]
        room = (0, max(0, tasks - had_tasks), 0, max(0, rows - had_rows))
        self.accuracy = torch.nn.functional.pad(self.accuracy, room, value=torch.nan)

    @torch.no_grad()
    def measure(
        self,
        scores: Scores,
        latest: int,
        *,
        row: int | None = None,
        class_il: bool,
        keep: bool = False,
    ) -> None:
        """Fill a row with the accuracies on the tasks up to the latest; by default its own row.

        In Class-IL all K classes compete, even those that have not been learnt yet; in Task-IL
        only the task's own. Without `class_il`, Task-IL only. With `keep`, `answers` takes no
        forward passes of its own.
        """
        row = latest if row is None else row
        self.grow(row + 1, latest + 1)
        tasks = [task for task in self._sets if task <= latest]
        if not tasks:
            return
        sizes = torch.tensor([len(self._sets[task].labels) for task in tasks], device=self._device)
        classes = torch.stack([self._sets[task].classes for task in tasks])
        shape = (len(self.accuracy), 2, len(tasks))
        right = torch.zeros(shape, dtype=torch.int64, device=self._device)
        self.kept = []
        for rated, labels, owners in self._rate(scores, tasks, together=class_il):
            if keep:
                self.kept.append(_answers(rated, labels))
            among_own = rated.masked_fill(~classes[owners], float("-inf"))
            for kind, some in enumerate((rated, among_own)):
                right[:, kind].index_add_(1, owners, (some.argmax(-1) == labels).long())
        # In float64, and divided last, so that all right is exactly 100.
        percent = right.double() * 100 / sizes
        first = 0 if class_il else 1
        self.accuracy[:, first:, row, tasks] = percent[:, first:]

    @torch.no_grad()
    def answers(
        self, scores: Scores, *, class_il: bool, confidence: bool
    ) -> list[tuple[Answers, list[float]]]:
        """Each trial's predictions on all test samples, and mean probability of each true class.

        All K classes compete. Without `class_il`, predictions of a method that is given the task
        are not counted; without `confidence`, scores are not logits, and probabilities are NaN.
        """
        rated = self._rate(scores, [*self._sets], together=class_il)
        chunks = self.kept or [_answers(own, labels) for own, labels, _ in rated]
        parts = [torch.cat(part, dim=1).cpu().numpy() for part in zip(*chunks, strict=True)]
        truth = torch.cat([test.labels for test in self._sets.values()]).cpu().numpy()
        found = []
        for guesses, of_truth, sure, right in zip(*parts, strict=True):
            fields: dict[str, Any] = {}
            means = np.full(self._classes, np.nan)
            if class_il and self._classes <= _MOST_CLASSES:
                pairs = np.bincount(truth * self._classes + guesses, minlength=self._classes**2)
                fields["confusion"] = pairs.reshape(self._classes, -1).tolist()
            if confidence:
                sums, counts = (
                    np.bincount(truth, weights, minlength=self._classes)
                    for weights in (of_truth, None)
                )
                np.divide(sums, counts, out=means, where=counts > 0)
                fields |= _bins(np.nan_to_num(sure.astype(np.float64)), right)
            found.append((Answers(**fields), means.tolist()))
        return found

    def _rate(
        self, scores: Scores, tasks: Sequence[int], *, together: bool
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield scores [S, B, K], labels [B] and owners [B] of the samples of tasks, in order.

        The owner is the index of a sample's task among `tasks`. With `together`, tasks share
        forwards: many small tasks of a benchmark cost as much as one large task. A chunk's content
        depends only on the tasks, so the bits of a trial do not depend on its stack.
        """
        for _, group in groupby(
            range(len(tasks)), lambda own: id(self._sets[tasks[own]].inputs) if together else own
        ):
            owners = list(group)
            tests = [self._sets[tasks[own]] for own in owners]
            places = torch.cat([test.places for test in tests], dim=-1)
            labels = torch.cat([test.labels for test in tests])
            counts = torch.tensor([len(test.labels) for test in tests])
            owner = torch.repeat_interleave(torch.tensor(owners), counts).to(self._device)
            task = tasks[-1] if together else tasks[owners[0]]
            inputs, compiled = tests[0].inputs, self.compiled
            at_once = _ROWS_AT_ONCE if compiled is None else _COMPILED_ROWS
            for start in range(0, len(labels), at_once):
                some = slice(start, start + at_once)
                if compiled is not None and isinstance(inputs, Tensor):
                    rated = compiled(inputs, places[..., some])
                else:
                    seen = self._normalise(fetch(inputs, places[..., some], self._device))
                    rated = scores(seen, task)
                yield rated, labels[some], owner[some]


def _answers(rated: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
    """Per sample the prediction, the probabilities of truth and answer, whether it is right."""
    # Trial by trial: the rounding of a stacked softmax depends on the stack.
    probabilities = torch.stack([own.softmax(-1) for own in rated])
    of_truth = probabilities.gather(-1, labels.expand(len(rated), -1).unsqueeze(-1))
    sure, surest = probabilities.max(-1)
    return rated.argmax(-1), of_truth.squeeze(-1), sure, surest == labels


def _bins(sure: NDArray[np.float64], right: NDArray[np.bool_]) -> dict[str, list[float]]:
    """Count predictions by their probability, as `Answers` does."""
    bins = (sure * CALIBRATION_BINS).astype(np.int64).clip(max=CALIBRATION_BINS - 1)
    counts, confidence, correct = (
        np.bincount(bins, weights, minlength=CALIBRATION_BINS) for weights in (None, sure, right)
    )
    return {
        "counts": counts.tolist(),
        "confidence": confidence.tolist(),
        "right": correct.astype(np.int64).tolist(),
    }


def samples_per_class(num_classes: int) -> int:
    """How many test samples of each class curves are measured on, the first in their order."""
    return max(_FEWEST_PER_CLASS, min(_MOST_PER_CLASS, _CURVE_SAMPLES // num_classes))


def measured_steps(length: int, every: int, seen: int) -> list[int]:
    """After which steps of a task, counted from 1, it is measured: every N-th, and the last.

    N is multiplied where there would be too many points. `seen` is the number of tasks so far,
    including this one.
    """
    most = max(1, min(_MOST_POINTS, _MOST_VALUES // seen))
    every *= -(-length // (every * most))
    return [*range(every, length, every), length]
