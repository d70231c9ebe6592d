"""What a method is: a loss over the batches of one step, and perhaps more.

Axes: S stacked trials, B samples of the stream, R replayed samples, K classes. A loss has one
entry a trial, [S]; no reduction crosses trials.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from remask.errors import RemaskError
from remask.losses import trial_cross_entropy
from remask.methods.workbench import Gradients, Task, Workbench
from remask.nets import NetBuilder


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

    __slots__ = ("active", "faded", "mask_value", "replays", "rows", "stream", "task")

    def __init__(
        self,
        stream: Batch,
        replays: tuple[Batch, ...],
        active: torch.Tensor | None,
        mask_value: torch.Tensor | None,
        rows: torch.Tensor,
        task: Task,
        faded: torch.Tensor | None = None,
    ) -> None:
        self.stream = stream
        """The samples that have just arrived."""
        self.replays = replays
        """The method's independent draws from memory; empty while the memory is."""
        self.active = active
        self.mask_value = mask_value
        self.rows = rows
        """The rows of the samples of the stream, as the workbench takes them: int64 [S, B]."""
        self.task = task
        """The task that is being learnt."""
        self.faded = faded
        """How far each trial's mask has faded, from 0, not at all, to 1: [S]; None: none fades."""

    def stream_loss(self, among: torch.Tensor | None = None) -> torch.Tensor:
        """Cross-entropy on the stream, [S]. The mask, where a trial wears one, acts here.

        In trials without one, all classes compete, or those `among` [K], if given. Where a mask
        fades, the two are mixed.
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

    def cross_entropy(self, batch: Batch, among: torch.Tensor | None = None) -> torch.Tensor:
        """Ordinary cross-entropy, [S], over all classes, or `among` some: bool [S or 1, 1, K]."""
        return trial_cross_entropy(batch.logits, batch.labels, among, None)


class MethodError(RemaskError, ValueError):
    """A method that cannot run as it was asked to; the message says why, and what to do."""


class Method(ABC):
    """A way to learn from a stream. A subclass is mainly its loss.

    Most methods are a loss and a few declarations. One that needs more may bend the gradients, act
    after a step and at the borders of tasks, and predict in its own way; `self.bench` then has the
    networks, the data and named random numbers. Nothing of it may cross trials.
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
    """How many independent draws it makes in a step from a reservoir that the engine keeps."""
    stores_logits: ClassVar[bool] = False
    """Whether the reservoir keeps the logits of the moment of insertion."""
    one_forward: ClassVar[bool] = False
    """Whether stream and replay go through the network as one batch. It matters to batch
    statistics only; without them, the engine always takes one forward."""
    own_memory: ClassVar[Literal["no", "whole", "drawn"]] = "no"
    """Whether it keeps samples itself, up to the buffer's size, and uses all of them or draws of
    the replay batch's size."""
    learns: ClassVar[Literal["tasks", "union"]] = "tasks"
    """Task after task, or all tasks at once at the end."""
    usual_mask: ClassVar[float | None] = None
    """The mask it wears where nothing is said."""
    usual_fade: ClassVar[float] = 0.0
    """How its mask fades where nothing is said; see `TrialConfig.fade`."""
    unmaskable: ClassVar[str | None] = None
    """Why it cannot wear a mask, if it cannot."""
    works_on_host: ClassVar[str | None] = None
    """Why a step of it must wait for values from the device, if it must."""
    class_il: ClassVar[bool] = True
    """Whether it can tell classes of different tasks apart without being told the task."""
    confidence: ClassVar[bool] = True
    """Whether the softmax of its scores is a probability."""
    remembers: ClassVar[tuple[str, ...]] = ()
    """Names of attributes that change from step to step, made in `prepare` and of one shape for
    ever: tensors [S, ...], or dicts of them. They are saved and restored."""
    predicts_with: ClassVar[tuple[str, ...]] = ()
    """Those of them that `scores` uses beside the networks."""

    bench: Workbench

    def __init_subclass__(cls) -> None:
        cls.title = cls.__dict__.get("title", cls.__name__)  # not the one of the class above

    def __init__(self, weights: Mapping[str, torch.Tensor]) -> None:
        for name in self.weights:
            setattr(self, name, weights[name])

    @classmethod
    def uses_buffer(cls) -> bool:
        """Whether samples are kept, by the engine or by the method itself."""
        return cls.draws > 0 or cls.own_memory != "no"

    @classmethod
    def least_buffer(cls, num_tasks: int, num_classes: int) -> int:
        """How many places its memory needs to be of any use."""
        return 1

    @classmethod
    def uses_replay_batch(cls) -> bool:
        """Whether it draws from what is kept."""
        return cls.draws > 0 or cls.own_memory == "drawn"

    @classmethod
    def uses_tasks(cls) -> bool:
        """Whether it does something where a task begins or ends, so that it must be told."""
        return cls.begin_task is not Method.begin_task or cls.end_task is not Method.end_task

    @classmethod
    def adapt_net(cls, build: NetBuilder, num_tasks: int) -> NetBuilder:
        """The builder of the networks it trains, from that of the plain ones."""
        return build

    def prepare(self) -> None:
        """Make what the method remembers; called once, before everything else."""

    def begin_task(self, task: Task) -> None:
        """Called once before the first step of a task."""

    @abstractmethod
    def loss(self, step: Step) -> torch.Tensor:
        """The loss of each trial, [S]."""

    def bend(self, step: Step, gradients: Gradients) -> Gradients:
        """Change the gradients of the loss before they are used."""
        return gradients

    def after_step(self, step: Step) -> None:
        """Called after the networks have been updated."""

    def end_task(self, task: Task) -> None:
        """Called once after the last step of a task, before it is evaluated."""

    def more_samples(self, task: Task) -> int:
        """How many samples beside its own every epoch of a task has; known before the run."""
        return 0

    def more_rows(self, task: Task) -> Tensor:
        """Their rows: int64 [S, more_samples]."""
        return torch.empty((self.bench.trials, 0), dtype=torch.int64, device=self.bench.device)

    def scores(self, inputs: Tensor, task: int) -> Tensor:
        """Rate the classes for test inputs [B, *shape] of a task: [S, B, K], the highest wins."""
        return self.bench.net.predict(inputs)

    @classmethod
    def predictor(cls, net: nn.Module, own: Mapping[str, Tensor]) -> nn.Module:
        """An ordinary module that scores as `scores` does, of one trial: [B, *shape] -> [B, K].

        `net` has the trial's weights. `own` has the trial's part of what `predicts_with` names.
        """
        return net

    def state(self) -> dict[str, Tensor]:
        """The tensors to save and restore; the live ones, not copies."""
        tensors: dict[str, Tensor] = {}
        for name in self.remembers:
            value = getattr(self, name)
            if isinstance(value, Tensor):
                tensors[name] = value
            else:
                tensors.update({f"{name}/{key}": tensor for key, tensor in value.items()})
        return tensors
