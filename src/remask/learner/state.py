"""The tensors of a learner's state: whether those of a file can be believed."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from remask.errors import RemaskError
from remask.learner.errors import LearnerError, damaged
from remask.learner.heldout import KEYS, LABELS, SOURCES
from remask.learner.manifest import Learnt
from remask.memory import EMPTY

MEMORY_SOURCES, MEMORY_LABELS, MEMORY_LOGITS = "memory/sources", "memory/labels", "memory/logits"
HEAD_WEIGHT, HEAD_BIAS = "head/weight", "head/bias"
_COUNTS, _STEPS, _OFFERED = "stream/counts", "stream/steps", "memory/offered"
_KEPT_LABELS, _KEPT_INPUTS = "stream/kept_labels", "stream/kept_inputs"
_LARGEST = 1 << 53
MISFITS = (
    ValueError,
    RuntimeError,
    LookupError,
    TypeError,
    AssertionError,
    ArithmeticError,
    RemaskError,
)
"""What is raised where tensors are put into a net or an engine that they do not fit."""


def check_state(learnt: Learnt, tensors: Mapping[str, Tensor]) -> None:
    """Refuse a state that does not belong to what a manifest describes. Raises ValueError."""
    rows = sum(segment.rows for segment in learnt.segments)
    known = torch.tensor([name is not None for name in learnt.classes])
    _check(tensors, SOURCES, 1, highest=rows - 1)
    _check(tensors, LABELS, 1, highest=len(known) - 1)
    _check(tensors, KEYS, 1, highest=2**63 - 1)
    _check_alike(tensors, SOURCES, LABELS, KEYS)
    labels = [tensors[LABELS]]
    if learnt.head != "net":
        _check_head(learnt, tensors)
    if learnt.head == "net" or _COUNTS in tensors:
        _check(tensors, _COUNTS, 2, highest=_LARGEST)
        _check(tensors, _STEPS, 1, highest=_LARGEST)
        _check_alike(tensors, _COUNTS, _STEPS)
        if tensors[_COUNTS].shape != (learnt.tasks, learnt.outputs):
            raise ValueError(f"{_COUNTS} is {list(tensors[_COUNTS].shape)}")
    if MEMORY_LABELS in tensors:
        _check(tensors, MEMORY_LABELS, 1, lowest=EMPTY, highest=len(known) - 1)
        filled = tensors[MEMORY_LABELS] != EMPTY
        _check(tensors, MEMORY_SOURCES, 1, highest=rows - 1, where=filled)
        _check_alike(tensors, MEMORY_LABELS, MEMORY_SOURCES)
        _check(tensors, _OFFERED, 2, highest=_LARGEST)
        labels.append(tensors[MEMORY_LABELS][filled])
    if _KEPT_LABELS in tensors:
        _check(tensors, _KEPT_LABELS, 2, lowest=EMPTY, highest=len(known) - 1)
        kept = tensors.get(_KEPT_INPUTS)
        if kept is None or kept.shape[:2] != tensors[_KEPT_LABELS].shape:
            raise ValueError(f"{_KEPT_INPUTS} does not fit {_KEPT_LABELS}")
    if not bool(known[torch.cat(labels)].all()):
        raise ValueError("it has samples of a class that was forgotten")
    for name, tensor in tensors.items():
        if name.startswith("method/"):
            if not tensor.ndim or len(tensor) != 1:
                raise ValueError(f"{name} is {list(tensor.shape)}, not of one net")
            if tensor.dtype == torch.int64:
                _check(tensors, name, tensor.ndim, lowest=EMPTY, highest=_most(tensors))


def _check_head(learnt: Learnt, tensors: Mapping[str, Tensor]) -> None:
    assert learnt.data is not None
    if learnt.data.features is None:
        raise ValueError(f"the head is {learnt.head}, which works on features")
    shapes = {
        HEAD_WEIGHT: [learnt.outputs, learnt.data.kept.shape[0]],
        HEAD_BIAS: [learnt.outputs],
    }
    for name, shape in shapes.items():
        tensor = tensors.get(name)
        if tensor is None or tensor.dtype != torch.float32 or list(tensor.shape) != shape:
            raise ValueError(f"{name} is missing, or not float32 {shape}")


@contextmanager
def taking_over(path: Path) -> Iterator[None]:
    """Report tensors that do not fit where they are put as damage of their file."""
    try:
        yield
    except LearnerError:
        raise
    except MISFITS as error:
        reason = f"its tensors do not fit, {type(error).__name__}: {str(error)[:200]}"
        raise damaged(path, reason) from error


def _check(
    tensors: Mapping[str, Tensor],
    name: str,
    axes: int,
    *,
    highest: int,
    lowest: int = 0,
    where: Tensor | None = None,
) -> None:
    tensor = tensors.get(name)
    if tensor is None or tensor.dtype != torch.int64 or tensor.ndim != axes:
        raise ValueError(f"{name} is missing, or not int64 with {axes} axes")
    if where is not None:
        if where.shape != tensor.shape:
            raise ValueError(f"{name} is {list(tensor.shape)}")
        tensor = tensor[where]
    if tensor.numel() and not (lowest <= int(tensor.min()) and int(tensor.max()) <= highest):
        raise ValueError(f"{name} has values outside of {lowest} to {highest}")


def _check_alike(tensors: Mapping[str, Tensor], *names: str) -> None:
    if len({len(tensors[name]) for name in names}) > 1:
        raise ValueError(f"{' and '.join(names)} have different lengths")


def _most(tensors: Mapping[str, Tensor]) -> int:
    """The largest whole number that a method may have stored: of its own samples, or a count."""
    kept = tensors.get(_KEPT_LABELS)
    return _LARGEST if kept is None else kept.shape[1]
