"""Tasks, and the samples that are held out of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from remask.data.benchmark import Benchmark
from remask.data.classes import SplitError
from remask.memory import StoredRows
from remask.randomness import generator


@dataclass(frozen=True, eq=False)
class Subset:
    """A part of a data set, with the same labels but other samples in each trial of a stack."""

    labels: Tensor
    """int64 [N], one per row."""
    places: Tensor | None = None
    """int64 [S, N]: the index of each trial's rows in the whole set; None: the whole set."""


def held_out(labels: Tensor, share: float, seed: int) -> Tensor:
    """Mark the samples to hold out, bool [N]: of every class at least one, and never all."""
    chosen = torch.zeros(len(labels), dtype=torch.bool)
    by_class = torch.split(labels.argsort(stable=True), torch.bincount(labels).tolist())
    for label, rows in enumerate(by_class):
        count = min(max(round(share * len(rows)), 1), len(rows) - 1)
        if count > 0:
            drawn = generator(seed, "validation", label).permutation(len(rows))[:count]
            chosen[rows[drawn]] = True
    return chosen


def hold_out(labels: Tensor, share: float, seeds: Sequence[int]) -> tuple[Subset, Subset | None]:
    """Split labels [N] into the rows to learn and, if `share` is not 0, the rows to hold out.

    The samples are drawn per trial; their number per class is the same. Rows are sorted by class.
    """
    if not share:
        return Subset(labels), None
    order = labels.argsort(stable=True)
    chosen = [held_out(labels, share, seed)[order] for seed in seeds]
    learnt = torch.stack([order[~mask] for mask in chosen])
    apart = torch.stack([order[mask] for mask in chosen])
    return Subset(labels[learnt[0]], learnt), Subset(labels[apart[0]], apart)


def set_apart(subset: Subset, share: float, seeds: Sequence[int]) -> tuple[Subset, Subset | None]:
    """Split a subset again, as `hold_out` splits a whole set."""
    learnt, apart = hold_out(subset.labels, share, seeds)
    if apart is None or subset.places is None or learnt.places is None or apart.places is None:
        return (subset, None) if apart is None else (learnt, apart)
    return (
        Subset(learnt.labels, subset.places.gather(1, learnt.places)),
        Subset(apart.labels, subset.places.gather(1, apart.places)),
    )


def check_share(labels: Tensor, share: float, name: str, class_names: Sequence[str]) -> None:
    """Raise SplitError if a class has one sample only, which cannot be held out."""
    alone = (torch.bincount(labels) == 1).nonzero().flatten().tolist() if share else []
    if alone:
        names = ", ".join(repr(class_names[label]) for label in alone[:5])
        raise SplitError(
            f"cannot hold out {share:g} of every class of {name}: {names}"
            f"{', ...' if len(alone) > 5 else ''} has one training sample. Hold out nothing, "
            f"add samples, or drop the class."
        )


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
