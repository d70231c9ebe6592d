"""Evaluation: Class-IL and Task-IL accuracy and the confidence, all from the same scores."""

from collections.abc import Callable

import torch
from torch import Tensor

from remask.benchmarks import Benchmark
from remask.streams import Part, Standardise

_ROWS_AT_ONCE = 512  # a chunk whose activations stay in cache


Scores = Callable[[Tensor, int], Tensor]
"""How a method rates the classes for inputs of a task, [B, *shape] that all trials share or
[S, B, *shape] of each trial's own: [S, B, K]."""


class Evaluator:
    """Measures a method's scores on the tasks of a benchmark, and keeps what it found."""

    def __init__(
        self, benchmark: Benchmark, inputs: Tensor, part: Part, trials: int, device: torch.device
    ) -> None:
        self._benchmark = benchmark
        self._inputs = inputs.to(device)
        self._labels = part.labels.to(device)
        self._places = None if part.places is None else part.places.to(device)
        self._standardise = Standardise.of(benchmark, device)
        tasks = range(benchmark.num_tasks)
        active = [benchmark.active(task) for task in tasks]
        self._active = [own.to(device) for own in active]
        self._rows = [own[part.labels].nonzero().squeeze(-1).to(device) for own in active]
        shape = (trials, benchmark.num_tasks, benchmark.num_tasks)
        self.class_il = torch.full(shape, torch.nan, dtype=torch.float64)
        """Accuracy matrices [S, T, T] in percent; NaN where not measured."""
        self.task_il = torch.full(shape, torch.nan, dtype=torch.float64)
        """The same, when the task of a sample is told."""

    def measure(self, scores: Scores, task: int, *, class_il: bool) -> None:
        """Fill the row of a task that has just ended; without `class_il`, Task-IL only."""
        of_all, of_task = self._accuracy(scores, task + 1)
        if class_il:
            self.class_il[:, task, : task + 1] = of_all.cpu()
        self.task_il[:, task, : task + 1] = of_task.cpu()

    def _accuracy(self, scores: Scores, tasks: int) -> tuple[Tensor, Tensor]:
        """Percent correct on each of the first `tasks` tasks: (Class-IL, Task-IL), each [S, tasks].

        In Class-IL all K classes compete, also those not seen yet; in Task-IL only the task's own.
        """
        class_il, task_il = [], []
        for task in range(tasks):
            outside = ~self._active[task]
            right_of_all: Tensor | int = 0
            right_of_task: Tensor | int = 0
            for rows in torch.split(self._rows[task], _ROWS_AT_ONCE):
                rated, labels = scores(self._see(rows), task), self._labels[rows]
                right_of_all = right_of_all + (rated.argmax(-1) == labels).sum(-1)
                rated = rated.masked_fill(outside, float("-inf"))
                right_of_task = right_of_task + (rated.argmax(-1) == labels).sum(-1)
            # In float64, and divided last, so that all right is 100 and not a hair more.
            size = len(self._rows[task])
            class_il.append(torch.as_tensor(right_of_all, dtype=torch.float64) * 100 / size)
            task_il.append(torch.as_tensor(right_of_task, dtype=torch.float64) * 100 / size)
        return torch.stack(class_il, -1), torch.stack(task_il, -1)

    def confidence(self, scores: Scores) -> Tensor:
        """The mean probability of the true class, for each class: [S, K]."""
        sums: Tensor | None = None
        counts = torch.bincount(self._labels, minlength=self._benchmark.num_classes)
        for task, rows_of_task in enumerate(self._rows):
            for rows in torch.split(rows_of_task, _ROWS_AT_ONCE):
                labels = self._labels[rows]
                probabilities = scores(self._see(rows), task).softmax(-1)
                truth = labels.expand(len(probabilities), -1).unsqueeze(-1)
                of_truth = probabilities.gather(-1, truth).squeeze(-1).double()
                if sums is None:
                    sums = of_truth.new_zeros(len(of_truth), len(counts))
                sums.index_add_(1, labels, of_truth)
        assert sums is not None  # a benchmark has test data
        return sums / counts

    def _see(self, rows: Tensor) -> Tensor:
        places = rows if self._places is None else self._places[:, rows]
        inputs = self._inputs[places] * self._benchmark.scale
        return inputs if self._standardise is None else self._standardise(inputs)
