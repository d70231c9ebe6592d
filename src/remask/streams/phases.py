"""Phases: the stretches of a stream between two evaluations."""

from dataclasses import dataclass

import torch
from torch import Tensor

from remask.benchmarks import Benchmark


@dataclass(frozen=True, eq=False)
class Phase:
    """The samples that are learnt between two evaluations."""

    task: int
    """The task that ends with this phase: the row of the accuracy matrix to fill."""
    rows: torch.Tensor
    """int64 [N]: rows of what is learnt from."""
    active: torch.Tensor
    """bool [K]: the classes that are present in the phase."""


def task_phases(benchmark: Benchmark, labels: Tensor) -> list[Phase]:
    """One phase a task, of rows with these labels [N]: the ordinary class-incremental stream."""
    return [
        Phase(task, active.to(labels.device)[labels].nonzero().squeeze(-1), active)
        for task, active in enumerate(map(benchmark.active, range(benchmark.num_tasks)))
    ]


def union_phase(benchmark: Benchmark, labels: Tensor) -> list[Phase]:
    """All tasks at once, evaluated at the end: the upper bound."""
    rows = torch.arange(len(labels))
    return [Phase(benchmark.num_tasks - 1, rows, torch.ones(benchmark.num_classes).bool())]
