"""From your own inputs and labels to a Benchmark: checking them, splitting them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from remask import randomness
from remask.benchmarks.benchmark import Benchmark, first_not_finite
from remask.classes import Tasks, spread_classes
from remask.datasets import DataError
from remask.user_data import as_bytes_or_floats

TaskList = int | Sequence[Sequence[int | str]]
"""A number of tasks, or the classes of each task in order of learning."""


@dataclass(frozen=True, eq=False)
class Part:
    """Inputs uint8 or float32 [N, *shape] and their labels int64 [N]."""

    inputs: torch.Tensor
    labels: torch.Tensor

    def rows(self, chosen: torch.Tensor) -> "Part":
        """Keep the rows that are marked; bool [N]."""
        return Part(self.inputs[chosen], self.labels[chosen])


def from_numpy(inputs: npt.NDArray[Any], labels: npt.NDArray[Any], what: str) -> Part:
    """Check types and shapes. Grey images [N, H, W] get a channel axis, floats become float32."""
    inputs = as_bytes_or_floats(inputs, f"{what}: inputs")
    if inputs.ndim not in (2, 3, 4):
        raise DataError(f"{what}: inputs must be [N, C, H, W], got {list(inputs.shape)}")
    if inputs.ndim == 4 and inputs.shape[-1] in (1, 3) and inputs.shape[1] not in (1, 3):
        raise DataError(
            f"{what}: inputs {list(inputs.shape)} have their channels last; bring them to "
            f"[N, C, H, W] with np.moveaxis(inputs, -1, 1)"
        )
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise DataError(
            f"{what}: labels must be one integer per input, got {labels.dtype} {list(labels.shape)}"
        )
    if len(inputs) != len(labels):
        raise DataError(f"{what}: {len(inputs)} inputs but {len(labels)} labels")
    tensor = torch.from_numpy(np.ascontiguousarray(inputs))
    if (row := first_not_finite(tensor)) is not None:
        raise DataError(
            f"{what}: input {row} has a NaN or an infinite number in it (or one too large for "
            f"float32). Mend it, or leave the row out."
        )
    return Part(
        tensor.unsqueeze(1) if inputs.ndim == 3 else tensor,
        torch.from_numpy(labels.astype(np.int64)),
    )


def assemble(
    name: str,
    train: Part,
    test: Part | float,
    tasks: TaskList,
    *,
    seed: int,
    class_names: Sequence[str] = (),
) -> Benchmark:
    """Make the benchmark, setting test data aside if `test` is a fraction. Raises DataError."""
    num_classes = _count_classes(name, train.labels)
    if isinstance(test, float | int):
        train, test = _hold_out(name, train, test, seed)
    try:
        return Benchmark(
            name=name,
            train_inputs=train.inputs,
            train_labels=train.labels,
            test_inputs=test.inputs,
            test_labels=test.labels,
            tasks=_tasks(tasks, num_classes, class_names),
            scale=1.0 if train.inputs.is_floating_point() else 1 / 255,
            class_names=tuple(map(_readable, class_names)),
        )
    except ValueError as error:
        raise DataError(f"{name}: {error}") from error


def _readable(name: str) -> str:
    """The name of a folder as text that can be stored, whatever bytes it is made of."""
    return name.encode(errors="backslashreplace").decode()


def _count_classes(name: str, labels: torch.Tensor) -> int:
    # Not by the largest label: one stray number would ask for memory for that many classes.
    found = np.unique(labels.numpy()).tolist()
    if len(found) < 2:
        raise DataError(f"{name}: {len(found)} class only; there is nothing to tell apart")
    if found != list(range(len(found))):
        shown = ", ".join(map(str, found[:20])) + (", ..." if len(found) > 20 else "")
        raise DataError(
            f"{name}: labels out of range: {len(found)} classes must be numbered "
            f"0..{len(found) - 1}, found {shown}. np.unique(labels, return_inverse=True)[1] "
            f"numbers them anew"
        )
    return len(found)


def _hold_out(name: str, part: Part, fraction: float, seed: int) -> tuple[Part, Part]:
    """Set a fraction of every class aside, drawn from the seed, at least one of each."""
    if not 0 < fraction < 1:
        raise DataError(f"{name}: the test fraction must be between 0 and 1, got {fraction}")
    is_test = torch.zeros(len(part.labels), dtype=torch.bool)
    for label in np.unique(part.labels.numpy()).tolist():
        rows = (part.labels == label).nonzero().squeeze(-1)
        if len(rows) < 2:
            raise DataError(
                f"{name}: class {label} has one input only; it cannot be in train and test"
            )
        count = min(max(round(fraction * len(rows)), 1), len(rows) - 1)
        drawn = randomness.generator(seed, "held out", label).permutation(len(rows))[:count]
        is_test[rows[torch.from_numpy(drawn)]] = True
    return part.rows(~is_test), part.rows(is_test)


def _tasks(tasks: TaskList, num_classes: int, class_names: Sequence[str]) -> Tasks:
    if isinstance(tasks, int):
        return spread_classes(num_classes, tasks)
    number_of = {name: label for label, name in enumerate(class_names)}

    def label(given: int | str) -> int:
        if isinstance(given, int):
            return given
        if given not in number_of:
            raise DataError(
                f"there is no class {given!r}; known: {', '.join(class_names) or 'numbers only'}"
            )
        return number_of[given]

    dealt = tuple(tuple(label(given) for given in task) for task in tasks)
    count = sum(map(len, dealt))
    if count != num_classes:
        raise DataError(f"the tasks hold {count} classes, the data has {num_classes}")
    return dealt
