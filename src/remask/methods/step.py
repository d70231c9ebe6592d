"""A step: what a method may look at to compute a loss.

Axes: S stacked trials, B samples of the stream, R replayed samples, K classes.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from remask.losses import trial_cross_entropy
from remask.streams import Task


class Batch:
    """Samples of one step, of every trial of the stack."""

    __slots__ = ("_forward", "_logits", "_recorded", "inputs", "labels")

    def __init__(
        self,
        inputs: Tensor,
        labels: Tensor,
        forward: Callable[[Tensor], Tensor],
        recorded: Tensor | None = None,
    ) -> None:
        self.inputs = inputs
        """What the network sees: [S, B, *shape]."""
        self.labels = labels
        """int64 [S, B]."""
        self._forward = forward
        self._logits: Tensor | None = None
        self._recorded = recorded

    @property
    def logits(self) -> Tensor:
        """What the network says now, [S, B, K]. The first look runs the forward, if need be."""
        if self._logits is None:
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

    def stream_loss(self, among: Tensor | None = None) -> Tensor:
        """Cross-entropy on the stream, [S]. The mask, where a trial has one, acts here.

        In trials without one, all classes compete, or those `among` [K], if given. Where a mask
        fades, the masked loss and the one without a mask are mixed.
        """
        active, value = self.active, self.mask_value
        if among is not None:
            if active is None or value is None:
                active, value = among.expand(1, 1, -1), None
            else:
                unmasked = active.all(-1, keepdim=True)
                active = torch.where(unmasked, among, active)
                value = value.masked_fill(unmasked, -torch.inf)
        logits, labels = self.stream.logits, self.stream.labels
        masked = trial_cross_entropy(logits, labels, active, value)
        if self.faded is None:
            return masked
        return (1 - self.faded) * masked + self.faded * trial_cross_entropy(
            logits, labels, among, None
        )

    def cross_entropy(self, batch: Batch, among: Tensor | None = None) -> Tensor:
        """Ordinary cross-entropy, [S], over all classes, or `among` some: bool [S or 1, 1, K]."""
        return trial_cross_entropy(batch.logits, batch.labels, among, None)
