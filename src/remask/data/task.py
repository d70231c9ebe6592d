"""Tasks: what is learnt between two evaluations."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from remask.data.benchmark import Benchmark
from remask.data.holdout import Subset
from remask.memory import StoredRows


@dataclass(frozen=True, eq=False)
class TaskData:
    """The samples of a task that is not part of a benchmark."""

    inputs: Tensor | StoredRows
    """[N, *shape], including those held out."""
    labels: Tensor
    """int64 [N]."""
    learnt: Subset
    """The rows to learn."""
    held_out: Subset | None
    """The rows held out, if any."""
    test: tuple[Tensor, Tensor] | None
    """Test inputs and labels, if any."""
    apart: Subset | None = None
    """The rows on which candidates are compared, if any."""


@dataclass(frozen=True, eq=False)
class Task:
    """A task of the stream."""

    number: int
    """From 0; the row of the accuracy matrix."""
    rows: Tensor
    """Its rows among the samples to learn, ascending, the same in all trials: int64 [N]."""
    own_labels: tuple[int, ...]
    """Its classes, ascending."""
    seen_labels: tuple[int, ...]
    """Its classes, and those of all tasks before it, ascending."""
    num_classes: int
    """K."""
    data: TaskData | None = None
    """Its samples; None if the stack has them, as for a benchmark."""

    @cached_property
    def old_labels(self) -> tuple[int, ...]:
        """The classes of all tasks before it, without its own, ascending."""
        return tuple(sorted({*self.seen_labels} - {*self.own_labels}))

    # Cached on the device, so that no step waits for a copy.
    @cached_property
    def classes(self) -> Tensor:
        """Bool [K]: mask of its classes."""
        return self._flags(self.own_labels)

    @cached_property
    def seen(self) -> Tensor:
        """Bool [K]: mask of `seen_labels`."""
        return self._flags(self.seen_labels)

    @cached_property
    def old(self) -> Tensor:
        """Bool [K]: mask of `old_labels`."""
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
    """Return the tasks of a benchmark for rows with these labels [N]."""
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
    """Return one task with all classes, the upper bound."""
    every_class = tuple(range(benchmark.num_classes))
    rows = torch.arange(len(labels), device=device)
    return [
        Task(benchmark.num_tasks - 1, rows, every_class, every_class, benchmark.num_classes),
    ]


def labels_in(classes: Tensor) -> tuple[int, ...]:
    """Return the classes in a mask, bool [K], ascending."""
    return tuple(classes.nonzero().flatten().tolist())
