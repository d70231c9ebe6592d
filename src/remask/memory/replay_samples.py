"""The samples of a replay memory: reading and checking them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from remask.errors import RemaskError

Values = Tensor | NDArray[Any] | Sequence[Any]

Parts = dict[str, Tensor]
"""Samples as tensors [n, ...]: `inputs` or several `inputs/NAME`, `labels`, perhaps `logits`."""

_INPUTS = "inputs/"


class ReplayMemoryError(RemaskError, ValueError):
    """Invalid samples or state; the memory is unchanged."""


class ReplayBatch(NamedTuple):
    """Samples drawn from a memory, or one of them without the first axis."""

    inputs: Any
    """[n, *shape], as added: a tensor, or a dict of tensors."""
    labels: Tensor
    """int64 [n], or [n, ...] if the labels are dense."""
    logits: Tensor | None
    """[n, K, ...], or None if the samples were added without logits."""


def as_batch(parts: Parts) -> ReplayBatch:
    """Return the parts as they were added."""
    named = {n.removeprefix(_INPUTS): t for n, t in parts.items() if n.startswith(_INPUTS)}
    return ReplayBatch(named or parts["inputs"], parts["labels"], parts.get("logits"))


def read_samples(x: Values | Mapping[str, Values], y: Values, logits: Tensor | None) -> Parts:
    """Return samples as tensors, with int64 labels. Raises ReplayMemoryError."""
    if isinstance(x, Mapping):
        if not x or not all(isinstance(name, str) for name in x):
            raise ReplayMemoryError("x must be a tensor or a non-empty dict with string keys")
        parts = {_INPUTS + name: _as_tensor(f"x[{name!r}]", x[name]) for name in sorted(x)}
    else:
        parts = {"inputs": _as_tensor("x", x)}
    labels = parts["labels"] = _as_tensor("y", y)
    if any(not part.ndim or part.shape[:1] != labels.shape[:1] for part in parts.values()):
        shapes = ", ".join(f"{name}: {list(part.shape)}" for name, part in parts.items())
        raise ReplayMemoryError(f"y must have one label per sample; got {shapes}")
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise ReplayMemoryError(f"labels must be integers, got {labels.dtype}")
    parts["labels"] = labels.to(torch.int64)
    if logits is not None:
        if not isinstance(logits, Tensor):
            raise ReplayMemoryError(f"logits must be a tensor, got {type(logits).__name__}")
        if logits.ndim < 2 or len(logits) != len(labels):
            raise ReplayMemoryError(f"logits must be [{len(labels)}, K], got {list(logits.shape)}")
        parts["logits"] = logits
    return parts


def check_samples(parts: Parts, stored: Parts, policy: str) -> None:
    """Raise ReplayMemoryError if samples fit neither the policy nor the stored ones, if any."""
    labels, kind = parts["labels"], kind_of(parts)
    if labels.ndim > 1 and policy != "reservoir":
        raise ReplayMemoryError(
            f'policy "{policy}" needs one label per sample, got y {list(labels.shape)}'
        )
    x = parts.get("inputs")
    if policy == "merging" and (x is None or not (x.is_floating_point() or x.dtype == torch.uint8)):
        raise ReplayMemoryError(
            f'policy "merging" needs a tensor x of floating point or uint8, got {kind}'
        )
    if not stored:
        return
    if kind != kind_of(stored):
        raise ReplayMemoryError(f"the memory holds samples {kind_of(stored)}, got {kind}")
    logits, known = parts.get("logits"), stored.get("logits")
    if (logits is None) != (known is None):
        raise ReplayMemoryError(
            "either all samples have logits or none; the first ones were added "
            f"{'without' if known is None else 'with'} logits"
        )
    if logits is None or known is None:
        return
    if logits.dtype != known.dtype or logits.shape[2:] != known.shape[2:]:
        raise ReplayMemoryError(f"logits must be {_kind(known)}, got {_kind(logits)}")
    if logits.shape[1] < known.shape[1]:
        raise ReplayMemoryError(
            f"logits must have at least {known.shape[1]} classes, as before, got {logits.shape[1]}"
        )


def kind_of(parts: Parts) -> str:
    """Return the types and shapes of one sample's inputs, and the shape of dense labels."""
    own = [
        f"{name.removeprefix(_INPUTS)}: {_kind(parts[name])}"
        for name in sorted(parts)
        if name.startswith("inputs")
    ]
    dense = list(parts["labels"].shape[1:])
    return ", ".join(own).removeprefix("inputs: ") + (f" with labels {dense}" if dense else "")


def _kind(part: Tensor) -> str:
    return f"{part.dtype} {list(part.shape[1:])}"


def _as_tensor(name: str, values: Values) -> Tensor:
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ReplayMemoryError(
            f"{name} is a {type(values).__name__} that torch cannot convert ({error}). Pass "
            f"tensors or arrays of numbers; tokenise texts and number labels first"
        ) from None
