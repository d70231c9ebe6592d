"""A step: what a method may look at to compute a loss.

Axes: S stacked trials, B samples of the stream, R replayed samples, K classes.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from remask.losses import (
    Weight,
    cross_entropy_and_slope,
    logit_mse,
    mse_and_slope,
    trial_cross_entropy,
)
from remask.methods.errors import MethodError
from remask.streams import Task


class Joined:
    """The samples of several batches side by side; they go through the network together."""

    __slots__ = ("_parts", "forward", "inputs", "sizes")

    def __init__(
        self, inputs: Tensor, sizes: Sequence[int], forward: Callable[[Tensor], Tensor]
    ) -> None:
        self.inputs = inputs
        """What the network sees: [S, sum of sizes, *shape]."""
        self.sizes = list(sizes)
        """How many samples each batch has."""
        self.forward = forward
        """The network."""
        self._parts: Sequence[Tensor] | None = None

    @property
    def said(self) -> bool:
        """Whether it is known what the network says."""
        return self._parts is not None

    def say(self, logits: Tensor) -> None:
        """Know what the network says of all samples, [S, sum of sizes, K]."""
        self._parts = torch.split(logits, self.sizes, dim=1)

    def logits_of(self, number: int) -> Tensor:
        """What the network says of one batch. The first look runs the forward, for all batches."""
        if self._parts is None:
            self.say(self.forward(self.inputs))
        assert self._parts is not None
        return self._parts[number]

    def inputs_of(self, number: int) -> Tensor:
        """What the network sees of one batch."""
        return torch.split(self.inputs, self.sizes, dim=1)[number]


class Batch:
    """Samples of one step, of every trial of the stack."""

    __slots__ = ("_forward", "_inputs", "_logits", "_recorded", "labels", "place")

    def __init__(
        self,
        inputs: Tensor | None,
        labels: Tensor,
        forward: Callable[[Tensor], Tensor] | None = None,
        recorded: Tensor | None = None,
        place: tuple[Joined, int] | None = None,
    ) -> None:
        """Make a batch of inputs of its own, or of those in a place among others."""
        self.labels = labels
        """int64 [S, B]."""
        self.place = place
        """With which other samples it goes through the network, and its number among them."""
        self._inputs, self._forward = inputs, forward
        self._logits: Tensor | None = None
        self._recorded = recorded

    @property
    def inputs(self) -> Tensor:
        """What the network sees: [S, B, *shape]."""
        if self._inputs is None:
            assert self.place is not None
            joined, number = self.place
            self._inputs = joined.inputs_of(number)
        return self._inputs

    @inputs.setter
    def inputs(self, inputs: Tensor) -> None:
        if self.place is not None:  # from now on it goes by itself
            self._forward, self.place = self.place[0].forward, None
        self._inputs = inputs

    @property
    def logits(self) -> Tensor:
        """What the network says now, [S, B, K]. The first look runs the forward, if need be."""
        if self._logits is None:
            if self.place is not None:
                joined, number = self.place
                return joined.logits_of(number)
            assert self._forward is not None
            self._logits = self._forward(self.inputs)
        return self._logits

    @logits.setter
    def logits(self, logits: Tensor) -> None:
        self._logits = logits

    @property
    def recorded(self) -> Tensor:
        """What the network said when the samples were stored, [S, B, K]."""
        if self._recorded is None:
            raise AttributeError("no logits were stored: the method must set stores_logits")
        return self._recorded


class Term(NamedTuple):
    """A part of a loss: weight * CE(batch), or with `stored` weight * MSE(logits, stored)."""

    batch: Batch
    weight: Weight = 1.0
    """One for all trials, or [S]."""
    active: Tensor | None = None
    """Which classes compete, bool [S or 1, 1, K]; None: all."""
    mask_value: Tensor | None = None
    """What the logits of the others are set to, [S, 1, 1]; None: -inf."""
    stored: Tensor | None = None
    """[S, B, K]."""

    def kind(self, step: "Step") -> str:
        """What it is called in logs."""
        if self.stored is not None:
            return "distillation"
        return "stream" if self.batch is step.stream else "replay"

    def loss(self) -> Tensor:
        """Its value per trial, [S], for autograd."""
        logits = self.batch.logits
        if self.stored is not None:
            own = logit_mse(logits, self.stored)
        else:
            own = trial_cross_entropy(logits, self.batch.labels, self.active, self.mask_value)
        return own if isinstance(self.weight, float) and self.weight == 1 else self.weight * own

    def loss_and_slope(self) -> tuple[Tensor, Tensor]:
        """Its value, [S], and its gradient in the logits, [S, B, K], without autograd."""
        logits = self.batch.logits
        if self.stored is not None:
            return mse_and_slope(logits, self.stored, self.weight)
        labels = self.batch.labels
        return cross_entropy_and_slope(logits, labels, self.active, self.mask_value, self.weight)


def total(terms: Sequence[Term]) -> Tensor:
    """The sum of all terms per trial, [S], for autograd."""
    return added([term.loss() for term in terms])


def added(losses: Sequence[Tensor]) -> Tensor:
    """The sum of losses per trial, [S], in their order."""
    return reduce(torch.add, losses)


class Step:
    """All that a method may look at to compute one step's loss."""

    __slots__ = ("active", "faded", "mask_value", "replays", "rows", "stream", "task")

    def __init__(
        self,
        stream: Batch,
        replays: tuple[Batch, ...],
        active: Tensor | None,
        mask_value: Tensor | None,
        rows: Tensor,
        task: Task,
        faded: Tensor | None = None,
    ) -> None:
        self.stream = stream
        """The samples that have just arrived."""
        self.replays = replays
        """The method's independent draws from memory; empty while the memory is."""
        self.active = active
        """The classes that compete on the stream, bool [S, 1, K]; None if no trial has a mask."""
        self.mask_value = mask_value
        """What the logits of all other classes are set to, [S, 1, 1]; None as above."""
        self.rows = rows
        """The rows of the samples of the stream, as `Engine.batch` takes them: int64 [S, B]."""
        self.task = task
        """The task that is being learnt."""
        self.faded = faded
        """How far each trial's mask has faded, from 0, not at all, to 1: [S]; None: none fades."""

    def replay(self, batch: Batch) -> None:
        """Learn from a batch of the method's own memory, too, together with the stream.

        Once per step, and for methods that draw nothing from the engine's reservoir.
        """
        if self.replays or self.stream.place is None:
            raise MethodError(
                "the step has a replay already: a method that replays its own memory does so once "
                "per step, and sets no draws"
            )
        forward, sizes = self.stream.place[0].forward, [self.rows.shape[1], batch.labels.shape[1]]
        joined = Joined(torch.cat([self.stream.inputs, batch.inputs], dim=1), sizes, forward)
        self.stream = Batch(None, self.stream.labels, place=(joined, 0))
        self.replays = (Batch(None, batch.labels, place=(joined, 1)),)

    def stream_loss(self, among: Tensor | None = None) -> Tensor:
        """Cross-entropy on the stream, [S]. The mask, where a trial has one, acts here.

        In trials without one, all classes compete, or those `among` [K], if given. Where a mask
        fades, the masked loss and the one without a mask are mixed.
        """
        return total(self.stream_terms(among=among))

    def stream_terms(self, weight: float = 1.0, among: Tensor | None = None) -> list[Term]:
        """The same times a weight, as terms."""
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
        """Ordinary cross-entropy, [S], over all classes, or `among` some: bool [S or 1, 1, K]."""
        return trial_cross_entropy(batch.logits, batch.labels, among, None)
