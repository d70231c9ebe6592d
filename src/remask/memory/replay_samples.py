"""The samples of a replay memory: reading, checking and changing them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from remask.errors import RemaskError

Values = Tensor | NDArray[Any] | Sequence[Any]
Inputs = Tensor | dict[str, Tensor]
"""[n, *shape], or several such tensors by name, as tokenisers return."""

PREFIX = "inputs/"
"""The prefix of named inputs in a state."""


class ReplayMemoryError(RemaskError, ValueError):
    """Invalid samples or state; the memory is unchanged."""


class ReplayBatch(NamedTuple):
    """Samples drawn from a memory, or one of them without the first axis."""

    inputs: Any
    """[n, *shape], as added: a tensor, or a dict of tensors (`Inputs`)."""
    labels: Tensor
    """int64 [n], or [n, ...] if the labels are dense."""
    logits: Tensor | None
    """[n, K, ...], or None if the samples were added without logits."""

    def map(self, change: Callable[[Tensor], Tensor]) -> "ReplayBatch":
        """Return a batch of changed tensors."""
        changed = {name: change(part) for name, part in self.named().items()}
        inputs = {n.removeprefix(PREFIX): t for n, t in changed.items() if n.startswith(PREFIX)}
        return ReplayBatch(inputs or changed["inputs"], changed["labels"], changed.get("logits"))

    def named(self) -> dict[str, Tensor]:
        """Return the tensors by their names in a state."""
        if isinstance(self.inputs, dict):
            named = {PREFIX + name: self.inputs[name] for name in sorted(self.inputs)}
        else:
            named = {"inputs": self.inputs}
        named["labels"] = self.labels
        return named if self.logits is None else {**named, "logits": self.logits}

    def kind(self) -> str:
        """Return the types and shapes of one sample, without its logits."""
        named = self._replace(logits=None).named()
        labels = named.pop("labels")
        own = ", ".join(f"{name.removeprefix(PREFIX)}: {_of(part)}" for name, part in named.items())
        own = own.removeprefix("inputs: ")
        return own + (f" with labels {list(labels.shape[1:])}" if labels.ndim > 1 else "")


def read_samples(x: Values | Mapping[str, Values], y: Values, logits: Tensor | None) -> ReplayBatch:
    """Return samples as tensors, with int64 labels. Raises ReplayMemoryError."""
    inputs: Inputs
    if isinstance(x, Mapping):
        if not x or not all(isinstance(name, str) for name in x):
            raise ReplayMemoryError("x must be a tensor or a non-empty dict with string keys")
        inputs = {name: _as_tensor(f"x[{name!r}]", part) for name, part in x.items()}
    else:
        inputs = _as_tensor("x", x)
    labels = _as_tensor("y", y)
    batch = ReplayBatch(inputs, labels, None)
    if any(not part.ndim or part.shape[:1] != labels.shape[:1] for part in batch.named().values()):
        shapes = ", ".join(f"{name}: {list(part.shape)}" for name, part in batch.named().items())
        raise ReplayMemoryError(f"y must have one label per sample; got {shapes}")
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise ReplayMemoryError(f"labels must be integers, got {labels.dtype}")
    if logits is not None and (logits.ndim < 2 or len(logits) != len(labels)):
        raise ReplayMemoryError(f"logits must be [{len(labels)}, K], got {list(logits.shape)}")
    return ReplayBatch(inputs, labels.to(torch.int64), logits)


def check_samples(batch: ReplayBatch, stored: ReplayBatch | None, policy: str) -> None:
    """Raise ReplayMemoryError if samples fit neither the policy nor the first ones."""
    x, labels, logits = batch
    if labels.ndim > 1 and policy != "reservoir":
        raise ReplayMemoryError(
            f'policy "{policy}" needs one label per sample, got y {list(labels.shape)}'
        )
    if policy == "merging" and not (
        isinstance(x, Tensor) and (x.is_floating_point() or x.dtype == torch.uint8)
    ):
        raise ReplayMemoryError(
            f'policy "merging" needs a tensor x of floating point or uint8, got {batch.kind()}'
        )
    if stored is None:
        return
    if batch.kind() != stored.kind():
        raise ReplayMemoryError(f"the memory holds samples {stored.kind()}, got {batch.kind()}")
    if logits is None or stored.logits is None:
        if logits is not stored.logits:
            raise ReplayMemoryError(
                "either all samples have logits or none; the first ones were added "
                f"{'without' if stored.logits is None else 'with'} logits"
            )
        return
    if logits.dtype != stored.logits.dtype or logits.shape[2:] != stored.logits.shape[2:]:
        raise ReplayMemoryError(f"logits must be {_of(stored.logits)}, got {_of(logits)}")
    if logits.shape[1] < stored.logits.shape[1]:
        raise ReplayMemoryError(
            f"logits must have at least {stored.logits.shape[1]} classes, as before, got "
            f"{logits.shape[1]}"
        )


def _as_tensor(name: str, values: Values) -> Tensor:
    try:
        return torch.as_tensor(values)
    except torch.OutOfMemoryError:
        raise
    except (TypeError, ValueError, RuntimeError) as error:
        kind = type(values).__name__
        raise ReplayMemoryError(
            f"{name} is a {kind} that torch cannot convert ({error}). Pass tensors or arrays of "
            f"numbers; tokenise texts and number labels first"
        ) from None


def _of(part: Tensor) -> str:
    return f"{part.dtype} {list(part.shape[1:])}"
