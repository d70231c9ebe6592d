"""Names of classes: reading, checking and ordering them."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from remask.datasets import DataError

Labels = Sequence[Any] | npt.NDArray[Any] | Tensor | None
"""The class of each input: a name, or a whole number, which becomes its text."""
_LONGEST_NAME = 200


def class_name(label: Any) -> str:
    """Return the name of a class, which is its label as text. Raises DataError."""
    if isinstance(label, Tensor) and label.ndim == 0:
        label = label.item()
    if isinstance(label, np.generic):
        label = label.item()
    if isinstance(label, bool) or not isinstance(label, str | int):
        raise DataError(
            f"a label must be a class's name or number, not {type(label).__name__} {label!r:.50}"
        )
    return checked_name(str(label), "a class")


def class_names(labels: Sequence[Any] | npt.NDArray[Any] | Tensor) -> list[str]:
    """Return the name of each label's class. Raises DataError."""
    plain = labels.tolist() if isinstance(labels, np.ndarray | Tensor) else list(labels)
    return [class_name(label) for label in plain]


def checked_name(name: str, what: str) -> str:
    """Return a name that can be printed and stored. Raises DataError."""
    if not name.isprintable() or not 0 < len(name) <= _LONGEST_NAME:
        raise DataError(
            f"the name of {what} must have 1 to {_LONGEST_NAME} printable characters, got "
            f"{name!r:.60}"
        )
    return name


def in_order(names: Iterable[str]) -> list[str]:
    """Sort new names in the order of their outputs: numbers by size, others as text."""
    names = set(names)
    if all(name.isascii() and name.isdigit() for name in names):
        return sorted(names, key=lambda name: (int(name), name))
    return sorted(names)
