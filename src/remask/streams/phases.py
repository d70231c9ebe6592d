"""Phases: the stretches of a stream between two evaluations."""

from dataclasses import dataclass

import torch

from remask.benchmarks import Benchmark


@dataclass(frozen=True, eq=False)
class Phase:
    """The samples that are learnt between two evaluations."""

    task: int
    """The task that ends with this phase: the row of the accuracy matrix to fill."""
    rows: torch.Tensor
    """int64 [N]: rows of the train set."""
    active: torch.Tensor
    """bool [K]: the classes that are present in the phase."""


def task_phases(benchmark: Benchmark) -> list[Phase]:
    """One phase a task: the ordinary class-incremental stream."""
    return [
        Phase(task, benchmark.train_indices(task), benchmark.active(task))
        for task in range(benchmark.num_tasks)
    ]


def union_phase(benchmark: Benchmark) -> list[Phase]:
    """All tasks at once, evaluated at the end: the upper bound."""
    rows = torch.arange(len(benchmark.train_labels))
    return [Phase(benchmark.num_tasks - 1, rows, torch.ones(benchmark.num_classes).bool())]
