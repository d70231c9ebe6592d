"""A task: what is learnt between two evaluations."""

from dataclasses import dataclass
from functools import cached_property

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
    own_labels: tuple[int, ...]
    """Its classes, ascending."""
    seen_labels: tuple[int, ...]
    """Its classes, and those of all tasks before it, ascending."""
    num_classes: int
    """K."""
    data: TaskData | None = None
    """Its samples; None if the stack has them, as those of a benchmark."""

    @cached_property
    def old_labels(self) -> tuple[int, ...]:
        """The classes of all tasks before it, without its own, ascending."""
        return tuple(sorted({*self.seen_labels} - {*self.own_labels}))

    # The device is told of them once, so that no step has to wait for it.
    @cached_property
    def classes(self) -> Tensor:
        """Bool [K]: its own."""
        return self._flags(self.own_labels)

    @cached_property
    def seen(self) -> Tensor:
        """Bool [K]: its own, and those of all tasks before it."""
        return self._flags(self.seen_labels)

    @cached_property
    def old(self) -> Tensor:
        """Bool [K]: the classes of all tasks before it."""
        return self._flags(self.old_labels)

    @cached_property
    def seen_columns(self) -> Tensor:
        """`seen_labels` as an index on the device: int64."""
        return torch.tensor(self.seen_labels, dtype=torch.int64, device=self.rows.device)

    @cached_property
    def old_columns(self) -> Tensor:
        """`old_labels` as an index on the device: int64."""
        return torch.tensor(self.old_labels, dtype=torch.int64, device=self.rows.device)

    def _flags(self, labels: tuple[int, ...]) -> Tensor:
        flags = torch.zeros(self.num_classes, dtype=torch.bool)
        flags[list(labels)] = True
        return flags.to(self.rows.device)


def benchmark_tasks(benchmark: Benchmark, labels: Tensor, device: torch.device) -> list[Task]:
    """The tasks of a benchmark, of rows with these labels [N]: the class-incremental stream."""
    tasks = []
    seen: set[int] = set()
    for number in range(benchmark.num_tasks):
        classes = benchmark.active(number)
        own = labels_in(classes)
        seen |= {*own}
        rows = classes.to(labels.device)[labels].nonzero().squeeze(-1).to(device)
        tasks.append(Task(number, rows, own, tuple(sorted(seen)), benchmark.num_classes))
    return tasks


def union_task(benchmark: Benchmark, labels: Tensor, device: torch.device) -> list[Task]:
    """All tasks at once, evaluated at the end: the upper bound."""
    every_class = tuple(range(benchmark.num_classes))
    rows = torch.arange(len(labels), device=device)
    return [
        Task(benchmark.num_tasks - 1, rows, every_class, every_class, benchmark.num_classes),
    ]


def labels_in(classes: Tensor) -> tuple[int, ...]:
    """The classes that are in a set, bool [K], ascending."""
    return tuple(classes.nonzero().flatten().tolist())
