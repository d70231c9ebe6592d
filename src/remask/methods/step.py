"""The data of one training step, and the terms of a loss on it.

Axes: S stacked trials, B samples of the stream, R replayed samples, K classes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from remask.data.tasks import Task
from remask.errors import MethodError
from remask.losses import (
    Weight,
    cross_entropy_and_slope,
    logit_mse,
    mse_and_slope,
    trial_cross_entropy,
)
from remask.nets.stacked import StackedNet, State


class Joined:
    """One or more batches that share one forward pass."""

    def __init__(
        self, inputs: Tensor, sizes: Sequence[int], forward: Callable[[Tensor], Tensor]
    ) -> None:
        self.inputs = inputs
        """Network inputs, [S, sum of sizes, *shape]."""
        self.sizes = list(sizes)
        """Samples per batch."""
        self.forward = forward
        """The network."""
        self._logits: Sequence[Tensor] | None = None

    def set_logits(self, logits: Tensor) -> None:
        """Set the logits of all samples, [S, sum of sizes, K]."""
        alone = len(self.sizes) == 1
        self._logits = [logits] if alone else torch.split(logits, self.sizes, dim=1)

    def logits_of(self, number: int) -> Tensor:
        """Return the logits of one batch; the first call runs the forward pass of all."""
        if self._logits is None:
            self.set_logits(self.forward(self.inputs))
        assert self._logits is not None
        return self._logits[number]

    def inputs_of(self, number: int) -> Tensor:
        """Return the inputs of one batch."""
        return torch.split(self.inputs, self.sizes, dim=1)[number]


class Batch:
    """Samples of one step, for every trial of the stack."""

    def __init__(
        self, labels: Tensor, joined: Joined, number: int = 0, recorded: Tensor | None = None
    ) -> None:
        self.labels = labels
        """int64 [S, B]."""
        self.joined = joined
        """The batches that it shares a forward pass with."""
        self.number = number
        """Its number among them."""
        self._recorded = recorded

    @classmethod
    def alone(cls, inputs: Tensor, labels: Tensor, forward: Callable[[Tensor], Tensor]) -> "Batch":
        """Make a batch with a forward pass of its own."""
        return cls(labels, Joined(inputs, [labels.shape[1]], forward))

    @property
    def inputs(self) -> Tensor:
        """Network inputs, [S, B, *shape]."""
        return self.joined.inputs_of(self.number)

    @inputs.setter
    def inputs(self, inputs: Tensor) -> None:
        self.joined, self.number = Joined(inputs, [inputs.shape[1]], self.joined.forward), 0

    @property
    def logits(self) -> Tensor:
        """The current logits, [S, B, K]; the first access runs the forward pass if necessary."""
        return self.joined.logits_of(self.number)

    def taught(self, net: StackedNet, state: State) -> Tensor:
        """Return the logits of a teacher, a copy of the nets: [S, B, K]."""
        return net.teach(self.inputs, state)

    @property
    def recorded(self) -> Tensor:
        """The logits that were stored with the samples, [S, B, K]."""
        if self._recorded is None:
            raise AttributeError("no logits were stored: the method must set stores_logits")
        return self._recorded


class Term(NamedTuple):
    """One term of a loss: weight * CE(batch), or weight * MSE(logits, stored) with `stored`.

    A term whose fields depend on no inputs and logits but `stored`, which is `Batch.recorded` or
    `Batch.taught`, allows compiled steps.
    """

    batch: Batch
    weight: Weight = 1.0
    """A number for all trials, or [S]."""
    active: Tensor | None = None
    """Boolean mask of the active classes, [S or 1, 1, K]; None: all."""
    mask_value: Tensor | None = None
    """The value of masked logits, [S, 1, 1]; None: -inf."""
    stored: Tensor | None = None
    """Target logits, [S, B, K]."""
    shift: Tensor | None = None
    """What is added to the logits in a cross-entropy, [S, 1, K]."""

    def kind(self, step: "Step") -> str:
        """The name of the term in logs."""
        if self.stored is not None:
            return "distillation"
        return "stream" if self.batch is step.stream else "replay"

    def loss(self) -> Tensor:
        """Return the value per trial, [S], for autograd."""
        logits, labels = self._logits(), self.batch.labels
        if self.stored is not None:
            own = logit_mse(logits, self.stored)
        else:
            own = trial_cross_entropy(logits, labels, self.active, self.mask_value)
        return own if isinstance(self.weight, float) and self.weight == 1 else self.weight * own

    def loss_and_slope(self) -> tuple[Tensor, Tensor]:
        """Return the value, [S], and its gradient in the logits, [S, B, K], without autograd."""
        logits, labels = self._logits(), self.batch.labels
        if self.stored is not None:
            return mse_and_slope(logits, self.stored, self.weight)
        return cross_entropy_and_slope(logits, labels, self.active, self.mask_value, self.weight)

    def _logits(self) -> Tensor:
        return self.batch.logits if self.shift is None else self.batch.logits + self.shift


def total(terms: Sequence[Term]) -> Tensor:
    """Return the sum of all terms per trial, [S], for autograd."""
    return added([term.loss() for term in terms])


def added(losses: Sequence[Tensor]) -> Tensor:
    """Return the sum of losses per trial, [S], added in order."""
    return reduce(torch.add, losses)


@dataclass(slots=True, eq=False)
class Step:
    """The inputs of a method's loss."""

    stream: Batch
    """The current samples of the stream."""
    replays: tuple[Batch, ...]
    """Independent draws from memory; empty while the memory is empty."""
    active: Tensor | None
    """Boolean mask of the active classes, [S, 1, K]; None if no trial has a mask."""
    mask_value: Tensor | None
    """The value of masked logits, [S, 1, 1]; None if no trial has a mask."""
    rows: Tensor
    """Row numbers of the stream's samples, for `Context.batch`: int64 [S, B]."""
    task: Task
    """The current task."""
    faded: Tensor | None = None
    """How far each mask has faded, from 0 (not at all) to 1, [S]; None: no mask fades."""

    def replay(self, batch: Batch) -> None:
        """Add a batch from the method's own memory to this step.

        At most once per step, and only for methods without `draws`.
        """
        if self.replays:
            raise MethodError(
                "the step already has a replay: call step.replay once per step, and only in a "
                "method without draws"
            )
        inputs = torch.cat([self.stream.inputs, batch.inputs], dim=1)
        sizes = [own.labels.shape[1] for own in (self.stream, batch)]
        joined = Joined(inputs, sizes, self.stream.joined.forward)
        self.stream = Batch(self.stream.labels, joined)
        self.replays = (Batch(batch.labels, joined, 1),)

    def stream_loss(self, among: Tensor | None = None) -> Tensor:
        """Return the cross-entropy on the stream, [S], with each trial's mask.

        Trials without a mask use all classes, or those in `among` [K]. A fading mask mixes the
        masked and the unmasked loss.
        """
        return total(self.stream_terms(among=among))

    def stream_terms(self, weight: float = 1.0, among: Tensor | None = None) -> list[Term]:
        """Return the terms of `stream_loss`, times a weight."""
        active, value = self.active, self.mask_value
        if among is not None:
            if active is None or value is None:
                active, value = among.expand(1, 1, -1), None
            else:
                unmasked = active.all(-1, keepdim=True)
                active = torch.where(unmasked, among, active)
                value = value.masked_fill(unmasked, -torch.inf)
        if self.faded is None:
            return [Term(self.stream, weight, active, value)]
        return [
            Term(self.stream, weight * (1 - self.faded), active, value),
            Term(self.stream, weight * self.faded, among),
        ]

    def cross_entropy(self, batch: Batch, among: Tensor | None = None) -> Tensor:
        """Return the cross-entropy, [S], over all classes or `among` some: bool [S or 1, 1, K]."""
        return trial_cross_entropy(batch.logits, batch.labels, among, None)
