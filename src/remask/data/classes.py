"""Classes: their names, and the tasks that they are split into."""

import operator
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any

from remask.errors import DataError, RemaskError

Tasks = tuple[tuple[int, ...], ...]
"""The class ids of each task, in order of learning."""


_LONGEST_NAME = 200


class SplitError(RemaskError, ValueError):
    """Invalid tasks, class order, limit or hold-out for a benchmark."""


def split_classes(num_classes: int, num_tasks: int) -> Tasks:
    """Split classes as evenly as possible, larger tasks first, in label order."""
    return _cut(range(num_classes), _even_sizes(num_classes, num_tasks))


def split_again(
    tasks: Tasks, *, num_tasks: int | None, class_order: Sequence[int] | int | None
) -> Tasks:
    """Split the classes of the tasks in another order, or into another number of tasks.

    `class_order` is the order, or the seed to draw it from; None keeps the present one. Without
    `num_tasks` the tasks keep their sizes. Raises SplitError.
    """
    order = [label for task in tasks for label in task]
    if class_order is not None:
        order = ordered_classes(class_order, len(order))
    sizes = [len(task) for task in tasks]
    return _cut(order, sizes if num_tasks is None else _even_sizes(len(order), num_tasks))


def _cut(order: Sequence[int], sizes: Sequence[int]) -> Tasks:
    bounds = accumulate(sizes, initial=0)
    return tuple(tuple(order[start:end]) for start, end in pairwise(bounds))


def ordered_classes(class_order: Sequence[int] | int, num_classes: int) -> list[int]:
    """Return the classes in the given order, or in one drawn from a seed. Raises SplitError."""
    if isinstance(class_order, int):
        from remask import randomness  # imports numpy

        shuffled = randomness.generator(class_order, "class order").permutation(num_classes)
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


def check_tasks(tasks: Tasks, *, shared: bool = False) -> None:
    """Raise ValueError unless the tasks hold each of the classes 0..K-1, and none is empty.

    A class may be in several tasks if they share classes.
    """
    if not tasks:
        raise ValueError("a benchmark needs at least one task")
    empty = [number for number, task in enumerate(tasks) if not task]
    if empty:
        raise ValueError(f"task {empty[0]} has no classes")
    labels = [label for task in tasks for label in task]
    if {*labels} != {*range(len({*labels}))}:
        raise ValueError(
            f"the tasks hold {len({*labels})} classes, so their ids must be "
            f"0..{len({*labels}) - 1}; got {sorted({*labels})}"
        )
    if not shared and len({*labels}) < len(labels):
        twice = next(label for at, label in enumerate(labels) if label in labels[:at])
        raise ValueError(f"class {twice} is in the tasks twice")


def check_class_names(names: Sequence[object], num_classes: int) -> None:
    """Raise ValueError unless every class has a distinct name."""
    if len(names) != num_classes:
        raise ValueError(f"class_names has {len(names)} names for {num_classes} classes")
    label_of: dict[object, int] = {}
    for label, name in enumerate(names):
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            raise ValueError(f"the name of class {label} must be printable text, not {name!r}")
        if (first := label_of.setdefault(name, label)) < label:
            raise ValueError(f"classes {first} and {label} have the same name, {name!r}")


def _even_sizes(num_classes: int, num_tasks: int) -> list[int]:
    if not 1 <= num_tasks <= num_classes:
        raise SplitError(
            f"{num_classes} classes can be split into 1..{num_classes} tasks, not {num_tasks}"
        )
    size, left_over = divmod(num_classes, num_tasks)
    return [size + (task < left_over) for task in range(num_tasks)]


def class_name(label: Any) -> str:
    """Return a label as the name of a class. Raises DataError."""
    if getattr(label, "ndim", None) == 0:  # a number of NumPy, or a tensor
        label = label.item()
    if isinstance(label, bool) or not isinstance(label, str | int):
        raise DataError(
            f"a label must be a class's name or number, not {type(label).__name__} {label!r:.50}"
        )
    return checked_name(str(label), "a class")


def class_names(labels: Any) -> list[str]:
    """Return the class name of each label, [N] or [N, 1]. Raises DataError."""
    if hasattr(labels, "ndim"):
        labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
        labels = labels.tolist()
    return [class_name(label) for label in labels]


def checked_name(name: str, what: str) -> str:
    """Return the name if it can be printed and stored. Raises DataError."""
    if not name.isprintable() or not 0 < len(name) <= _LONGEST_NAME:
        raise DataError(
            f"the name of {what} must have 1 to {_LONGEST_NAME} printable characters, got "
            f"{name!r:.60}"
        )
    return name


def in_order(names: Iterable[str]) -> list[str]:
    """Sort the distinct names in the order of their outputs: numbers by size, others as text."""
    names = set(names)
    if all(name.isascii() and name.isdigit() for name in names):
        return sorted(names, key=lambda name: (int(name), name))
    return sorted(names)
