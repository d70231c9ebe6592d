"""Curves: accuracy within tasks, every few steps, on a small and fixed part of the test data."""

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from remask.engine.evaluation import Scores, TestSets
from remask.memory import StoredRows
from remask.record import Curve
from remask.streams import DataDescription

# Chosen for cost: with ten classes and a batch of 10 with as many replayed, 50 steps see 1,000
# samples forward and backward, about 3,000 forwards; a measurement is 150 on average, 5 % of that,
# and less in time, since its batches are larger.
_SAMPLES, _MOST_PER_CLASS, _FEWEST_PER_CLASS = 250, 25, 5
_MOST_VALUES, _MOST_POINTS = 640, 128
"""Of one task: each of its points has a value for every task so far."""


def samples_per_class(num_classes: int) -> int:
    """How many test samples of each class curves are measured on, the first in their order."""
    return max(_FEWEST_PER_CLASS, min(_MOST_PER_CLASS, _SAMPLES // num_classes))


def measured_steps(length: int, every: int, seen: int) -> list[int]:
    """After which of a task's steps, counted from 1, it is measured: each N-th, and the last.

    So that curves stay small however long a task is, N is multiplied where there would be too many.
    `seen` is the number of tasks so far, this one included.
    """
    most = max(1, min(_MOST_POINTS, _MOST_VALUES // seen))
    every *= -(-length // (every * most))
    return [*range(every, length, every), length]


class Curves:
    """Measures a method's scores on the tasks so far every few steps, and keeps what it found."""

    def __init__(
        self, data: DataDescription, trials: int, every: int, device: torch.device
    ) -> None:
        self._every = every
        self._sets = TestSets(data, device)
        self._per_class = samples_per_class(data.num_classes)
        # On the device, so that no step waits for it.
        self.class_il = torch.full((trials, 0, 0), torch.nan, dtype=torch.float64, device=device)
        """Percent [S, points, T]; NaN where not measured."""
        self.task_il = self.class_il.clone()
        """The same, when the task of a sample is told."""

    def add(
        self,
        task: int,
        classes: Tensor,
        inputs: Tensor | StoredRows,
        labels: Tensor,
        places: Tensor,
    ) -> None:
        """Measure a task on the first samples of each class among those of `Evaluator.add`."""
        each = [(labels == label).nonzero().flatten() for label in sorted({*labels.tolist()})]
        chosen = torch.cat([rows[: self._per_class] for rows in each]).sort().values
        self._sets.add(task, classes, inputs, labels[chosen], places[chosen])

    def steps(self, lengths: Sequence[int]) -> list[list[int]]:
        """After which steps each task is measured, of tasks with so many steps."""
        return [measured_steps(length, self._every, seen) for seen, length in enumerate(lengths, 1)]

    def points(self, lengths: Sequence[int]) -> dict[int, int]:
        """Where the last of these tasks has its points, by the steps of it that were taken."""
        *earlier, last = self.steps(lengths)
        first = sum(map(len, earlier))
        return {step: first + place for place, step in enumerate(last)}

    def grow(self, points: int, tasks: int) -> None:
        """Have room for so many points and tasks."""
        _, had_points, had_tasks = self.class_il.shape
        room = (0, max(0, tasks - had_tasks), 0, max(0, points - had_points))
        if any(room):
            self.class_il = torch.nn.functional.pad(self.class_il, room, value=torch.nan)
            self.task_il = torch.nn.functional.pad(self.task_il, room, value=torch.nan)

    def measure(self, scores: Scores, task: int, point: int, *, class_il: bool) -> None:
        """Fill a point within a task, or at its end; without `class_il`, Task-IL only."""
        earlier, of_all, of_task = self._sets.accuracies(scores, task, class_il=class_il)
        if class_il:
            self.class_il[:, point, earlier] = of_all
        self.task_il[:, point, earlier] = of_task

    def state(self) -> dict[str, Tensor]:
        """What must be saved, by name."""
        return {"curve_class_il": self.class_il, "curve_task_il": self.task_il}

    def of_trials(self, lengths: Sequence[int], numbers: Sequence[int]) -> list[Curve]:
        """The curve of each trial so far; tasks have so many steps, and these numbers."""
        starts = [0, *itertools.accumulate(lengths)]
        places = [
            (start + step, number)
            for start, number, steps in zip(starts, numbers, self.steps(lengths), strict=False)
            for step in steps
        ]
        known = (~self.task_il.isnan().all(-1).all(0)).nonzero().flatten().tolist()
        steps, learning = ([places[point][part] for point in known] for part in (0, 1))
        matrices = self.class_il[:, known].tolist(), self.task_il[:, known].tolist()
        return [
            Curve(steps=steps, learning=learning, class_il=class_il, task_il=task_il)
            for class_il, task_il in zip(*matrices, strict=True)
        ]
