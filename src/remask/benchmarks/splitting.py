"""Other ways to deal a benchmark's classes to tasks, and smaller parts of its data."""

import operator
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

import torch

from remask import randomness
from remask.benchmarks.benchmark import Benchmark, Tasks
from remask.errors import RemaskError


class SplitError(RemaskError, ValueError):
    """Tasks, an order of classes or a limit that the benchmark cannot have."""


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
    if tasks is not None or class_order is not None:
        old = [label for task in benchmark.tasks for label in task]
        order = old if class_order is None else _order(class_order, len(old))
        sizes = (
            [len(task) for task in benchmark.tasks]
            if tasks is None
            else _even_sizes(len(order), tasks)
        )
        benchmark = replace(benchmark, tasks=deal(order, sizes))
    return benchmark if limit is None else _limited(benchmark, limit)


def deal(order: Sequence[int], sizes: Sequence[int]) -> Tasks:
    """Cut the classes, in the order given, into tasks of the sizes given."""
    bounds = accumulate(sizes, initial=0)
    return tuple(tuple(order[start:end]) for start, end in pairwise(bounds))


def spread_classes(num_classes: int, num_tasks: int) -> Tasks:
    """Deal classes to tasks as evenly as possible, larger tasks first, in label order."""
    return deal(range(num_classes), _even_sizes(num_classes, num_tasks))


def _even_sizes(num_classes: int, num_tasks: int) -> list[int]:
    if not 1 <= num_tasks <= num_classes:
        raise SplitError(
            f"{num_classes} classes can be dealt to 1..{num_classes} tasks, not to {num_tasks}"
        )
    size, left_over = divmod(num_classes, num_tasks)
    return [size + (task < left_over) for task in range(num_tasks)]


def _order(class_order: Sequence[int] | int, num_classes: int) -> list[int]:
    if isinstance(class_order, int):
        shuffled = randomness.stream(class_order, "class order").permutation(num_classes)
        return [int(label) for label in shuffled]
    try:
        order = [operator.index(label) for label in class_order]
    except TypeError as error:
        raise SplitError(f"class_order must hold class ids: {error}") from error
    if sorted(order) != list(range(num_classes)):
        raise SplitError(
            f"class_order must name each of the classes 0..{num_classes - 1} once, got {order}"
        )
    return order


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
