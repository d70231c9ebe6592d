"""Evaluation: accuracy in Class-IL and Task-IL, answers and confidence, from the same scores."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from remask.memory import StoredRows, fetch
from remask.metrics import CALIBRATION_BINS
from remask.record import Answers
from remask.streams import DataDescription, Standardise

_ROWS_AT_ONCE = 512  # a chunk whose activations stay in cache
_MOST_CLASSES = 100  # of a confusion matrix that is kept: it grows with their square


Scores = Callable[[Tensor, int], Tensor]
"""How a method rates the classes for inputs, [B, *shape] that all trials share or [S, B, *shape]
of each trial's own: [S, B, K]. With Class-IL, inputs of several tasks come together, with the
latest of them; a method without Class-IL gets the inputs of one task and its number."""


@dataclass(frozen=True, eq=False)
class _TestSet:
    """What a task is measured on."""

    inputs: Tensor | StoredRows
    """[N, *shape], perhaps with those of other tasks."""
    places: Tensor
    """int64 [n] for all trials, or [S, n]: where its samples stand among them."""
    labels: Tensor
    """int64 [n]."""
    classes: Tensor
    """bool [K]: those of the task."""


class TestSets:
    """What the tasks of a stream are measured on."""

    __test__ = False  # pytest takes every name that begins like this for its own

    def __init__(self, data: DataDescription, device: torch.device) -> None:
        self._data, self._device = data, device
        self._standardise = Standardise.of(data, device)
        self._sets: dict[int, _TestSet] = {}

    def add(
        self,
        task: int,
        classes: Tensor,
        inputs: Tensor | StoredRows,
        labels: Tensor,
        places: Tensor,
    ) -> None:
        """Measure a task, of these classes bool [K], on the samples in some places of `inputs`."""
        if isinstance(inputs, Tensor):
            inputs = inputs.to(self._device)
        places, labels, classes = (each.to(self._device) for each in (places, labels, classes))
        self._sets[task] = _TestSet(inputs, places, labels, classes)

    def accuracies(
        self, scores: Scores, latest: int, *, class_il: bool
    ) -> tuple[list[int], Tensor, Tensor]:
        """The tasks up to the latest, and percent correct in Class-IL and Task-IL, [S, tasks].

        In Class-IL all K classes compete, also those not seen yet; in Task-IL only the task's own.
        """
        tasks = [task for task in self._sets if task <= latest]
        sizes = torch.tensor([len(self._sets[task].labels) for task in tasks], device=self._device)
        right_of_all = right_of_task = torch.zeros(0, len(tasks), device=self._device)
        for chunk in self._chunks(tasks, together=class_il):
            rated = scores(self._see(chunk.inputs), chunk.task)
            if not len(right_of_all):
                shape = (len(rated), len(tasks))
                right_of_all = torch.zeros(shape, dtype=torch.int64, device=self._device)
                right_of_task = torch.zeros_like(right_of_all)
                classes = torch.stack([self._sets[task].classes for task in tasks])
            right_of_all.index_add_(1, chunk.owners, (rated.argmax(-1) == chunk.labels).long())
            rated = rated.masked_fill(~classes[chunk.owners], float("-inf"))
            right_of_task.index_add_(1, chunk.owners, (rated.argmax(-1) == chunk.labels).long())
        # In float64, and divided last, so that all right is exactly 100.
        return tasks, right_of_all.double() * 100 / sizes, right_of_task.double() * 100 / sizes

    def answers(self, scores: Scores, *, class_il: bool, confidence: bool) -> "StackAnswers":
        """Predictions on all test samples. All K classes compete.

        Without `class_il`, predictions of a method that is given the task are not counted; without
        `confidence`, scores are not logits, and there are no probabilities.
        """
        every_label = torch.cat([test.labels for test in self._sets.values()])
        per_class = torch.bincount(every_label, minlength=self._data.num_classes)
        found: StackAnswers | None = None
        for chunk in self._chunks(list(self._sets), together=class_il):
            rated = scores(self._see(chunk.inputs), chunk.task)
            if found is None:
                found = StackAnswers.none(len(rated), per_class, rated.device)
            if class_il:
                found.count(rated, chunk.labels)
            if confidence:
                found.weigh(rated.softmax(-1), chunk.labels)
        assert found is not None  # a benchmark has test data
        return found

    def _chunks(self, tasks: Sequence[int], *, together: bool) -> Iterator["_Chunk"]:
        """The samples of tasks in their order, in chunks; with `together`, across tasks.

        One forward per chunk: many small tasks cost what one large task costs. What a chunk holds
        depends on the tasks alone, so the bits of a trial do not depend on its stack.
        """
        for group in [range(len(tasks))] if together else [[place] for place in range(len(tasks))]:
            tests = [self._sets[tasks[place]] for place in group]
            if not tests:
                continue
            labels = torch.cat([test.labels for test in tests])
            counts = torch.tensor([len(test.labels) for test in tests])
            owners = torch.repeat_interleave(torch.tensor(list(group)), counts).to(self._device)
            start = 0
            for inputs in _pieces(tests):
                end = start + sum(places.shape[-1] for _, places in inputs)
                task = tasks[group[-1]]
                yield _Chunk(inputs, labels[start:end], owners[start:end], task)
                start = end

    def _see(self, pieces: "_Pieces") -> Tensor:
        axis = pieces[0][1].dim() - 1
        found = [fetch(inputs, places, self._device) for inputs, places in pieces]
        inputs = self._data.scaled(found[0] if len(found) == 1 else torch.cat(found, axis))
        return inputs if self._standardise is None else self._standardise(inputs)


_Pieces = list[tuple[Tensor | StoredRows, Tensor]]
"""Inputs [N, *shape] and places among them, int64 [n] or [S, n]; one piece after the other."""


@dataclass(frozen=True, eq=False)
class _Chunk:
    """Samples that share a forward."""

    inputs: _Pieces
    labels: Tensor
    """int64 [B]."""
    owners: Tensor
    """int64 [B]: the place of each sample's task among the tasks that are measured."""
    task: int
    """The task of the samples, or the latest task if they are of several."""


def _pieces(tests: Sequence[_TestSet]) -> Iterator[_Pieces]:
    """The samples of some tasks in their order, `_ROWS_AT_ONCE` at a time."""
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


@dataclass(frozen=True, eq=False)
class StackAnswers:
    """What S trials answer on a test set, summed up."""

    per_class: Tensor
    """int64 [K]: how many samples there are of each class."""
    sums: Tensor
    """float64 [S, K]: the probabilities of the true class, summed over its samples."""
    confusion: Tensor
    """int64 [S, K, K]: how many samples of a class got an answer; [S, 0, 0] of too many classes."""
    bins: Tensor
    """float64 [3, S, bins], by the probability of an answer: answers, their probabilities, and how
    many are right."""

    @classmethod
    def none(cls, trials: int, per_class: Tensor, device: torch.device) -> "StackAnswers":
        """Before the first sample."""
        classes = len(per_class)
        kept = classes if classes <= _MOST_CLASSES else 0
        return cls(
            per_class,
            torch.zeros(trials, classes, dtype=torch.float64, device=device),
            torch.zeros(trials, kept, kept, dtype=torch.int64, device=device),
            torch.zeros(3, trials, CALIBRATION_BINS, dtype=torch.float64, device=device),
        )

    def count(self, rated: Tensor, labels: Tensor) -> None:
        """Count the answers to samples by their class."""
        trials, classes, _ = self.confusion.shape
        if classes:
            trial = torch.arange(trials, device=rated.device).unsqueeze(1)
            places = ((trial * classes + labels) * classes + rated.argmax(-1)).flatten()
            self.confusion.view(-1).index_add_(0, places, torch.ones_like(places))

    def weigh(self, probabilities: Tensor, labels: Tensor) -> None:
        """Sum up how probable the true class is, and how probable the answers are."""
        truth = labels.expand(len(probabilities), -1).unsqueeze(-1)
        of_truth = probabilities.gather(-1, truth).squeeze(-1).double()
        self.sums.index_add_(1, labels, of_truth)
        sure, answer = probabilities.max(-1)
        sure = sure.double().nan_to_num(0.0)  # of a trial that has diverged
        bins = (sure * CALIBRATION_BINS).long().clamp(max=CALIBRATION_BINS - 1)
        parts = torch.ones_like(sure), sure, (answer == labels).double()
        for total, values in zip(self.bins, parts, strict=True):
            total.scatter_add_(1, bins, values)

    def confidence(self) -> Tensor:
        """The mean probability of the true class, for each class: [S, K]."""
        return self.sums / self.per_class

    def of_trial(self, trial: int) -> Answers:
        """Those of one trial."""
        confusion = self.confusion[trial]
        counts, sure, right = self.bins[:, trial].tolist()
        return Answers(
            confusion=confusion.tolist() if bool(confusion.any()) else [],
            counts=[int(count) for count in counts] if any(counts) else [],
            confidence=sure if any(counts) else [],
            right=[int(count) for count in right] if any(counts) else [],
        )


class Evaluator:
    """Measures a method's scores on the tasks of a stream, and keeps what it found."""

    def __init__(
        self, data: DataDescription, trials: int, tasks: int, device: torch.device
    ) -> None:
        self._sets = TestSets(data, device)
        shape = (trials, tasks, tasks)
        self.class_il = torch.full(shape, torch.nan, dtype=torch.float64)
        """Accuracy matrices [S, T, T] in percent; NaN where not measured."""
        self.task_il = torch.full(shape, torch.nan, dtype=torch.float64)
        """The same, when the task of a sample is told."""

    def add(
        self,
        task: int,
        classes: Tensor,
        inputs: Tensor | StoredRows,
        labels: Tensor,
        places: Tensor,
    ) -> None:
        """Measure a task, of these classes bool [K], on the samples in some places of `inputs`."""
        self._sets.add(task, classes, inputs, labels, places)

    def grow(self, tasks: int) -> None:
        """Have room for so many tasks."""
        more = tasks - self.class_il.shape[1]
        if more <= 0:
            return
        room = (0, more, 0, more)
        self.class_il = torch.nn.functional.pad(self.class_il, room, value=torch.nan)
        self.task_il = torch.nn.functional.pad(self.task_il, room, value=torch.nan)

    def measure(self, scores: Scores, task: int, *, class_il: bool) -> None:
        """Fill the row of a task that has just ended; without `class_il`, Task-IL only."""
        earlier, of_all, of_task = self._sets.accuracies(scores, task, class_il=class_il)
        if class_il:
            self.class_il[:, task, earlier] = of_all.cpu()
        self.task_il[:, task, earlier] = of_task.cpu()

    def answers(self, scores: Scores, *, class_il: bool, confidence: bool) -> StackAnswers:
        """What is answered on all test samples, see `TestSets.answers`."""
        return self._sets.answers(scores, class_il=class_il, confidence=confidence)
