"""Other ways to deal a benchmark's classes to tasks, and smaller parts of its data."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from remask.benchmarks.benchmark import Benchmark
from remask.classes import SplitError, deal_anew, ordered_classes


def resplit(
    benchmark: Benchmark,
    *,
    tasks: int | None = None,
    class_order: Sequence[int] | int | None = None,
    limit: int | None = None,
) -> Benchmark:
    """Deal the classes anew, and keep the first `limit` inputs of each class, in file order.

    Labels stay what they are in the files; only `Benchmark.tasks` follows the order. Without
    `tasks` the tasks keep their sizes. Raises SplitError.
    """
    if tasks is None and class_order is None and limit is None:
        return benchmark
    if not (class_order is None or isinstance(class_order, int)):
        class_order = tuple(ordered_classes(class_order, benchmark.num_classes))
    told = {"tasks": tasks, "class_order": class_order, "limit": limit}
    given = {name: value for name, value in told.items() if value is not None}
    benchmark = replace(
        benchmark,
        tasks=deal_anew(benchmark.tasks, num_tasks=tasks, class_order=class_order),
        asked=tuple({**dict(benchmark.asked), **given}.items()),
    )
    return benchmark if limit is None else _limited(benchmark, limit)


def _limited(benchmark: Benchmark, limit: int) -> Benchmark:
    if limit < 1:
        raise SplitError(f"limit must be at least 1 per class, got {limit}")
    train = first_of_each_class(benchmark.train_labels, limit)
    test = first_of_each_class(benchmark.test_labels, limit)
    return replace(
        benchmark,
        train_inputs=benchmark.train_inputs[train],
        train_labels=benchmark.train_labels[train],
        test_inputs=benchmark.test_inputs[test],
        test_labels=benchmark.test_labels[test],
    )


def first_of_each_class(labels: torch.Tensor, n: int) -> torch.Tensor:
    """Find the first n rows of each class, or all it has, ascending; int64 [N] -> int64 [rows]."""
    # A stable sort keeps file order within a class, so a row's rank there is its distance from
    # the first row of its class.
    by_class, rows = labels.sort(stable=True)
    counts = torch.bincount(by_class)
    first = counts.cumsum(0) - counts
    rank = torch.arange(len(labels)) - first[by_class]
    return rows[rank < n].sort().values
