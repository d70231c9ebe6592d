"""What a method is: a loss over the batches of one step.

Axes: S stacked trials, B samples of the stream, R replayed samples, K classes. A loss has one
entry a trial, [S]; no reduction crosses trials.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar, Literal

import torch

from remask.losses import trial_cross_entropy


class Batch:
    """Samples of one step, of every trial of the stack."""

    __slots__ = ("_forward", "_logits", "_recorded", "inputs", "labels")

    def __init__(
        self,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        forward: Callable[[torch.Tensor], torch.Tensor],
        recorded: torch.Tensor | None = None,
    ) -> None:
        self.inputs = inputs
        """What the network sees: [S, B, *shape]."""
        self.labels = labels
        """int64 [S, B]."""
        self._forward = forward
        self._logits: torch.Tensor | None = None
        self._recorded = recorded

    @property
    def logits(self) -> torch.Tensor:
        """What the network says now, [S, B, K]. The first look runs the forward, if need be."""
        if self._logits is None:
            self._logits = self._forward(self.inputs)
        return self._logits

    @logits.setter
    def logits(self, logits: torch.Tensor) -> None:
        self._logits = logits

    @property
    def recorded(self) -> torch.Tensor:
        """What the network said when the samples were stored, [S, B, K]."""
        if self._recorded is None:
            raise AttributeError("no logits were stored: the method must set stores_logits")
        return self._recorded


class Step:
    """All that a method may look at to compute one step's loss."""

    __slots__ = ("active", "mask_value", "replays", "stream")

    def __init__(
        self,
        stream: Batch,
        replays: tuple[Batch, ...],
        active: torch.Tensor | None,
        mask_value: torch.Tensor | None,
    ) -> None:
        self.stream = stream
        """The samples that have just arrived."""
        self.replays = replays
        """The method's independent draws from memory; empty while the memory is."""
        self.active = active
        self.mask_value = mask_value

    def stream_loss(self) -> torch.Tensor:
        """Cross-entropy on the stream, [S]. The mask, where a trial wears one, acts here."""
        return trial_cross_entropy(
            self.stream.logits, self.stream.labels, self.active, self.mask_value
        )

    def cross_entropy(self, batch: Batch) -> torch.Tensor:
        """Ordinary cross-entropy over all classes, [S]."""
        return trial_cross_entropy(batch.logits, batch.labels, None, None)


class Method(ABC):
    """A way to learn from a stream. A subclass is mainly its loss.

    It never touches the optimiser, the memory or the loop: it declares what it needs of them.
    """

    name: ClassVar[str] = ""
    """What it is called on the command line, and in the published settings."""
    title: ClassVar[str]
    """What it is called in a table; the name of the class unless it says otherwise."""
    summary: ClassVar[str] = ""
    """One line for `remask methods`."""
    weights: ClassVar[Mapping[str, float]] = {}
    """Its loss weights, each with its value where nothing is published; each becomes an attribute,
    a tensor [S]."""
    draws: ClassVar[int] = 0
    """How many independent draws from memory it makes in a step; 0 = it keeps no memory."""
    stores_logits: ClassVar[bool] = False
    """Whether the memory keeps the logits of the moment of insertion."""
    one_forward: ClassVar[bool] = False
    """Whether stream and replay go through the network as one batch. It matters to batch
    statistics only; without them, the engine always takes one forward."""
    learns: ClassVar[Literal["tasks", "union"]] = "tasks"
    """Task after task, or all tasks at once at the end."""
    unmaskable: ClassVar[str | None] = None
    """Why it cannot wear a mask, if it cannot."""
    remembers: ClassVar[tuple[str, ...]] = ()
    """Names of attributes (tensors) that change from step to step: they are saved and restored."""

    def __init_subclass__(cls) -> None:
        cls.title = cls.__dict__.get("title", cls.__name__)  # not the one of the class above

    def __init__(self, weights: Mapping[str, torch.Tensor]) -> None:
        for name in self.weights:
            setattr(self, name, weights[name])

    @abstractmethod
    def loss(self, step: Step) -> torch.Tensor:
        """The loss of each trial, [S]."""

    def state(self) -> dict[str, torch.Tensor]:
        """The tensors to save and restore; the live ones, not copies."""
        return {name: getattr(self, name) for name in self.remembers}
