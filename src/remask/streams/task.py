"""A task: what is learnt between two evaluations."""

from dataclasses import dataclass

import torch
from torch import Tensor

from remask.benchmarks import Benchmark
from remask.memory import StoredRows
from remask.streams.holdout import Part


@dataclass(frozen=True, eq=False)
class TaskData:
    """The samples of a task that came by itself, and not as a part of a benchmark."""

    inputs: Tensor | StoredRows
    """[N, *shape], also those that are held out."""
    labels: Tensor
    """int64 [N]."""
    learnt: Part
    """What is learnt of them."""
    held_out: Part | None
    """What is not, if anything."""
    test: tuple[Tensor, Tensor] | None
    """Inputs and labels to be measured on, if there are any."""
    apart: Part | None = None
    """What candidates are chosen on, if the stack has any."""


@dataclass(frozen=True, eq=False)
class Task:
    """A task of the stream: what a stack learns, and what a method is told."""

    number: int
    """Counted from 0; the row of the accuracy matrix that it fills."""
    rows: Tensor
    """Its rows of what is learnt from, ascending, the same in all trials: int64 [N]."""
    classes: Tensor
    """bool [K]: its own."""
    seen: Tensor
    """bool [K]: its own, and those of all tasks before it."""
    data: TaskData | None = None
    """Its samples; None if the stack has them, as those of a benchmark."""

    @property
    def old(self) -> Tensor:
        """Bool [K]: the classes of all tasks before it."""
        return self.seen & ~self.classes


def benchmark_tasks(benchmark: Benchmark, labels: Tensor, device: torch.device) -> list[Task]:
    """The tasks of a benchmark, of rows with these labels [N]: the class-incremental stream."""
    tasks = []
    seen = torch.zeros(benchmark.num_classes, dtype=torch.bool)
    for number in range(benchmark.num_tasks):
        classes = benchmark.active(number)
        seen = seen | classes
        rows = classes.to(labels.device)[labels].nonzero().squeeze(-1)
        tasks.append(Task(number, rows.to(device), classes.to(device), seen.to(device)))
    return tasks


def union_task(benchmark: Benchmark, labels: Tensor, device: torch.device) -> list[Task]:
    """All tasks at once, evaluated at the end: the upper bound."""
    every_class = torch.ones(benchmark.num_classes, dtype=torch.bool, device=device)
    rows = torch.arange(len(labels), device=device)
    return [Task(benchmark.num_tasks - 1, rows, every_class, every_class)]
