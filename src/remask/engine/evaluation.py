"""Evaluation: Class-IL and Task-IL accuracy, predictions and their confidence."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

import torch
from torch import Tensor

from remask.data.tasks import DataDescription, Normaliser, Subset
from remask.memory import StoredRows, fetch
from remask.metrics import CALIBRATION_BINS
from remask.record import Answers, Curve

_ROWS_AT_ONCE = 512  # a chunk whose activations stay in the cache
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


_Pieces = list[tuple[Tensor | StoredRows, Tensor]]
"""Inputs [N, *shape] and places among them, int64 [n] or [S, n]; one piece after the other."""


@dataclass(frozen=True, eq=False)
class _Chunk:
    """Samples that share a forward pass."""

    inputs: _Pieces
    labels: Tensor
    """int64 [B]."""
    owners: Tensor
    """int64 [B]: the index of each sample's task among the tasks that are measured."""
    task: int
    """The task of the samples, or the latest one if they are of several."""


class Evaluator:
    """Measures a method's accuracy on the tasks of a stream.

    Stores matrices of R rows (moments) and T tasks. With `per_class`, only the first samples of
    each class are used.
    """

    def __init__(
        self,
        data: DataDescription,
        trials: int,
        device: torch.device,
        *,
        tasks: int = 0,
        per_class: int | None = None,
    ) -> None:
        self._data, self._device, self._per_class = data, device, per_class
        self._normalise = Normaliser.of(data, device)
        self._sets: dict[int, _TestSet] = {}
        # On the device, so that no step waits for it.
        self.class_il = torch.full((trials, 0, 0), torch.nan, dtype=torch.float64, device=device)
        """Percent [S, R, T]; NaN where not measured."""
        self.task_il = self.class_il.clone()
        """The same with the task of a sample given."""
        self.grow(tasks, tasks)

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
        _, had_rows, had_tasks = self.class_il.shape
        room = (0, max(0, tasks - had_tasks), 0, max(0, rows - had_rows))
        if any(room):
            self.class_il = torch.nn.functional.pad(self.class_il, room, value=torch.nan)
            self.task_il = torch.nn.functional.pad(self.task_il, room, value=torch.nan)

    def state(self, prefix: str = "") -> dict[str, Tensor]:
        """The tensors to save and restore; the live ones, not copies."""
        return {f"{prefix}class_il": self.class_il, f"{prefix}task_il": self.task_il}

    @torch.no_grad()
    def measure(self, scores: Scores, row: int, latest: int, *, class_il: bool) -> None:
        """Fill a row with the accuracies on the tasks up to the latest, in percent.

        In Class-IL all K classes compete, even those that have not been learnt yet; in Task-IL
        only the task's own. Without `class_il`, Task-IL only.
        """
        tasks = [task for task in self._sets if task <= latest]
        if not tasks:
            return
        sizes = torch.tensor([len(self._sets[task].labels) for task in tasks], device=self._device)
        classes = torch.stack([self._sets[task].classes for task in tasks])
        shape = (len(self.class_il), len(tasks))
        right_of_all = torch.zeros(shape, dtype=torch.int64, device=self._device)
        right_of_task = torch.zeros_like(right_of_all)
        for chunk in self._chunks(tasks, together=class_il):
            rated = scores(self._inputs(chunk.inputs), chunk.task)
            right_of_all.index_add_(1, chunk.owners, (rated.argmax(-1) == chunk.labels).long())
            rated = rated.masked_fill(~classes[chunk.owners], float("-inf"))
            right_of_task.index_add_(1, chunk.owners, (rated.argmax(-1) == chunk.labels).long())
        # In float64, and divided last, so that all right is exactly 100.
        if class_il:
            self.class_il[:, row, tasks] = right_of_all.double() * 100 / sizes
        self.task_il[:, row, tasks] = right_of_task.double() * 100 / sizes

    @torch.no_grad()
    def answers(self, scores: Scores, *, class_il: bool, confidence: bool) -> "StackAnswers":
        """Predictions on all test samples. All K classes compete.

        Without `class_il`, predictions of a method that is given the task are not counted; without
        `confidence`, scores are not logits, and there are no probabilities.
        """
        every_label = torch.cat([test.labels for test in self._sets.values()])
        per_class = torch.bincount(every_label, minlength=self._data.num_classes)
        found = StackAnswers(len(self.class_il), per_class)
        for chunk in self._chunks(list(self._sets), together=class_il):
            rated = scores(self._inputs(chunk.inputs), chunk.task)
            if class_il:
                found.count(rated, chunk.labels)
            if confidence:
                # Trial by trial: the rounding of a stacked softmax depends on the stack.
                sure = torch.stack([own.softmax(-1) for own in rated])
                found.add_probabilities(sure, chunk.labels)
        return found

    def _chunks(self, tasks: Sequence[int], *, together: bool) -> Iterator[_Chunk]:
        """The samples of tasks in order, in chunks; with `together`, across tasks.

        One forward per chunk: many small tasks cost as much as one large task. A chunk's content
        depends only on the tasks, so the bits of a trial do not depend on its stack.
        """
        for group in [range(len(tasks))] if together else [[place] for place in range(len(tasks))]:
            tests = [self._sets[tasks[place]] for place in group]
            labels = torch.cat([test.labels for test in tests])
            counts = torch.tensor([len(test.labels) for test in tests])
            owners = torch.repeat_interleave(torch.tensor(list(group)), counts).to(self._device)
            start = 0
            for inputs in _pieces(tests):
                end = start + sum(places.shape[-1] for _, places in inputs)
                yield _Chunk(inputs, labels[start:end], owners[start:end], tasks[group[-1]])
                start = end

    def _inputs(self, pieces: _Pieces) -> Tensor:
        axis = pieces[0][1].dim() - 1
        found = [fetch(inputs, places, self._device) for inputs, places in pieces]
        return self._normalise(found[0] if len(found) == 1 else torch.cat(found, axis))


def _pieces(tests: Sequence[_TestSet]) -> Iterator[_Pieces]:
    """The samples of some tasks in order, `_ROWS_AT_ONCE` at a time."""
    pieces: _Pieces = []
    room = _ROWS_AT_ONCE
    for _, sharing in groupby(tests, key=lambda test: id(test.inputs)):
        alike = list(sharing)
        places = torch.cat([test.places for test in alike], dim=-1)
        while places.shape[-1]:
            pieces.append((alike[0].inputs, places[..., :room]))
            places, room = places[..., room:], room - pieces[-1][1].shape[-1]
            if not room:
                yield pieces
                pieces, room = [], _ROWS_AT_ONCE
    if pieces:
        yield pieces


class StackAnswers:
    """The predictions of S trials on a test set, summed up."""

    def __init__(self, trials: int, per_class: Tensor) -> None:
        """`per_class` is the number of samples of each class, int64 [K]."""
        device, classes = per_class.device, len(per_class)
        kept = classes if classes <= _MOST_CLASSES else 0
        self._per_class = per_class
        # The probabilities of the true class, summed per class.
        self._sums = torch.zeros(trials, classes, dtype=torch.float64, device=device)
        # Predictions (last axis) by class.
        self._confusion = torch.zeros(trials, kept, kept, dtype=torch.int64, device=device)
        # By the probability of a prediction: how many, their probabilities, how many are right.
        bins = (3, trials, CALIBRATION_BINS)
        self._bins = torch.zeros(bins, dtype=torch.float64, device=device)

    def count(self, rated: Tensor, labels: Tensor) -> None:
        """Count predictions by class."""
        trials, classes, _ = self._confusion.shape
        if classes:
            trial = torch.arange(trials, device=rated.device).unsqueeze(1)
            places = ((trial * classes + labels) * classes + rated.argmax(-1)).flatten()
            self._confusion.view(-1).index_add_(0, places, torch.ones_like(places))

    def add_probabilities(self, probabilities: Tensor, labels: Tensor) -> None:
        """Sum up the probabilities of the true classes and of the predictions."""
        truth = labels.expand(len(probabilities), -1).unsqueeze(-1)
        of_truth = probabilities.gather(-1, truth).squeeze(-1).double()
        self._sums.index_add_(1, labels, of_truth)
        sure, answer = probabilities.max(-1)
        sure = sure.double().nan_to_num(0.0)  # of a trial that has diverged
        bins = (sure * CALIBRATION_BINS).long().clamp(max=CALIBRATION_BINS - 1)
        parts = torch.ones_like(sure), sure, (answer == labels).double()
        for total, values in zip(self._bins, parts, strict=True):
            total.scatter_add_(1, bins, values)

    def confidence(self) -> Tensor:
        """The mean probability of the true class, for each class: [S, K]."""
        return self._sums / self._per_class

    def of_trial(self, trial: int) -> Answers:
        """The predictions of one trial."""
        confusion = self._confusion[trial]
        counts, sure, right = self._bins[:, trial].tolist()
        return Answers(
            confusion=confusion.tolist() if bool(confusion.any()) else [],
            counts=[int(count) for count in counts] if any(counts) else [],
            confidence=sure if any(counts) else [],
            right=[int(count) for count in right] if any(counts) else [],
        )


class Curves:
    """Accuracy within tasks: measured every few steps, on a few test samples of each class."""

    def __init__(
        self, data: DataDescription, trials: int, every: int, device: torch.device
    ) -> None:
        self.evaluator = Evaluator(
            data, trials, device, per_class=samples_per_class(data.num_classes)
        )
        self._every = every

    def steps(self, lengths: Sequence[int]) -> list[list[int]]:
        """After which steps tasks of these lengths, in steps, are measured."""
        return [measured_steps(length, self._every, seen) for seen, length in enumerate(lengths, 1)]

    def points(self, lengths: Sequence[int]) -> dict[int, int]:
        """The rows of the last of these tasks, by the number of its steps taken."""
        *earlier, last = self.steps(lengths)
        first = sum(map(len, earlier))
        return {step: first + place for place, step in enumerate(last)}

    def of_trials(self, lengths: Sequence[int], numbers: Sequence[int]) -> list[Curve]:
        """The curve of each trial so far, for tasks of these lengths and numbers."""
        starts = [0, *accumulate(lengths)]
        places = [
            (start + step, number)
            for start, number, steps in zip(starts, numbers, self.steps(lengths), strict=False)
            for step in steps
        ]
        class_il, task_il = self.evaluator.class_il, self.evaluator.task_il
        known = (~task_il.isnan().all(-1).all(0)).nonzero().flatten().tolist()
        steps, learning = ([places[point][part] for point in known] for part in (0, 1))
        matrices = class_il[:, known].tolist(), task_il[:, known].tolist()
        return [
            Curve(steps=steps, learning=learning, class_il=own, task_il=own_task_il)
            for own, own_task_il in zip(*matrices, strict=True)
        ]


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
