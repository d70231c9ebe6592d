"""The base class of methods.

A loss has one entry per trial, [S]; no reduction crosses trials.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from remask.data.tasks import Task
from remask.errors import MethodError
from remask.memory import KeptRows
from remask.methods.context import Context
from remask.methods.step import Step, Term, total
from remask.nets.builders import NetBuilder
from remask.nets.stacked import Gradients, LossGradients


class Method:
    """A continual learning method. A subclass is mainly its loss.

    Most methods are a loss and a few declarations. Others also adjust gradients, act after a step
    or at the start or end of a task, or predict in their own way, with the networks, data and
    random numbers in `self.context`. Nothing may be computed across trials.
    """

    name: ClassVar[str] = ""
    """Name on the command line and in the published settings."""
    title: ClassVar[str]
    """Name in tables; by default the class name."""
    weights: ClassVar[Mapping[str, float]] = {}
    """Loss weights with their default values; each becomes an attribute, a tensor [S]."""
    trains_net: ClassVar[bool] = True
    """Whether steps follow the gradient of a loss. If not, the method learns only in `after_step`
    and `end_task`, in one pass over each task, without a loss or a learning rate."""
    draws: ClassVar[int] = 0
    """Independent draws per step from the engine's reservoir."""
    stores_logits: ClassVar[bool] = False
    """Whether the reservoir stores the logits at insertion."""
    one_forward: ClassVar[bool] = False
    """Whether stream and replay share batch statistics, in nets that have them."""
    own_memory: ClassVar[Literal["no", "whole", "drawn"]] = "no"
    """Whether the method keeps up to `buffer` samples itself, and uses all of them in a step or
    draws `replay_batch` of them."""
    learns: ClassVar[Literal["tasks", "union"]] = "tasks"
    """One task after the other, or all tasks together at the end."""
    needs_task_count: ClassVar[str | None] = None
    """Why the number of tasks must be known in advance, if it must: "divides ..."."""
    usual_mask: ClassVar[float | None] = None
    """The default mask."""
    usual_fade: ClassVar[float] = 0.0
    """The default of `TrialConfig.fade`."""
    unmaskable: ClassVar[str | None] = None
    """Why the method does not support a mask; None if it does."""
    works_on_host: ClassVar[str | None] = None
    """Why a step waits for values from the device; None if it does not."""
    ungrowable: ClassVar[str | None] = None
    """Why the head cannot grow; None if it can. State along an axis of classes grows by zeros."""
    class_il: ClassVar[bool] = True
    """Whether it predicts classes of all tasks without the task being given."""
    confidence: ClassVar[bool] = True
    """Whether the softmax of its scores is a probability."""
    remembers: ClassVar[tuple[str, ...]] = ()
    """Attributes to save and restore: tensors [S, ...] of fixed shape, or dicts of them, that
    `prepare` creates."""
    predicts_with: ClassVar[tuple[str, ...]] = ()
    """Those of them that `scores` uses."""

    memory: KeptRows | None = None
    """The samples that the method keeps itself; created in `prepare`, saved and restored."""
    context: Context
    """Networks, data and random numbers; available from `prepare` on."""

    def __init_subclass__(cls) -> None:
        cls.title = cls.__dict__.get("title", cls.__name__)  # not inherited
        if "scores" in vars(cls) and "own_scores" not in vars(cls):
            # The inherited one would disagree with the new `scores`.
            cls.own_scores = Method.own_scores  # type: ignore[method-assign]

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        for name in self.weights:
            setattr(self, name, weights[name])

    @classmethod
    def uses_buffer(cls) -> bool:
        """Whether the engine or the method keeps samples."""
        return cls.draws > 0 or cls.own_memory != "no"

    @classmethod
    def least_buffer(cls, num_tasks: int, num_classes: int) -> int:
        """The smallest usable memory."""
        return 1

    @classmethod
    def uses_replay_batch(cls) -> bool:
        """Whether it draws from memory."""
        return cls.draws > 0 or cls.own_memory == "drawn"

    @classmethod
    def uses_tasks(cls) -> bool:
        """Whether it needs to know where a task begins or ends."""
        return cls.begin_task is not Method.begin_task or cls.end_task is not Method.end_task

    @classmethod
    def adapt_net(cls, build: NetBuilder, num_tasks: int) -> NetBuilder:
        """Return the builder of the networks that it trains, given that of the plain ones."""
        return build

    def prepare(self) -> None:
        """Create the method's state; called once, first."""

    def begin_task(self, task: Task) -> None:
        """Called once before the first step of a task."""

    def begin_step(self, step: Step) -> None:
        """Called before the loss; may add samples with `step.replay`."""

    def loss(self, step: Step) -> Tensor:
        """Return the loss of each trial, [S]."""
        return total(self.terms(step))

    def terms(self, step: Step) -> list[Term]:
        """Return the loss as terms on the step's batches; an alternative to `loss`.

        Chains of linear layers are then trained without autograd, which is faster.
        """
        raise MethodError(f"{self.title} must define loss")

    def adjust_gradients(self, step: Step, gradients: LossGradients) -> Gradients:
        """Change the gradients of the loss before they are used."""
        return gradients

    def after_step(self, step: Step) -> None:
        """Called after the networks have been updated."""

    def end_task(self, task: Task) -> None:
        """Called once after the last step of a task, before it is evaluated."""

    def extra_samples(self, task: Task) -> int:
        """The number of samples that each epoch of a task has in addition to its own."""
        return 0

    def extra_rows(self, task: Task) -> Tensor:
        """Row numbers of the additional samples, the same in all epochs: [S, extra_samples]."""
        return torch.empty((self.context.trials, 0), dtype=torch.int64, device=self.context.device)

    def scores(self, inputs: Tensor, task: int) -> Tensor:
        """Return class scores for test inputs [B, *shape]: [S, B, K].

        With `class_il`, the inputs are of several tasks, and `task` is the latest one: do not use
        it. Otherwise it is the task of all inputs.
        """
        return self.context.net.predict(inputs)

    def own_scores(self, inputs: Tensor, task: int) -> Tensor:
        """Return class scores for inputs that differ by trial, [S, B, *shape]: [S, B, K].

        A method that overrides both must make them agree with `scores`.
        """
        if type(self).scores is Method.scores:
            return self.context.net.evaluate(inputs)
        return torch.stack([self.scores(own, task)[trial] for trial, own in enumerate(inputs)])

    @classmethod
    def predictor(cls, net: nn.Module, own: Mapping[str, Tensor]) -> nn.Module:
        """Return a module that computes one trial's `scores`: [B, *shape] -> [B, K].

        `net` has the trial's weights, and `own` its part of what `predicts_with` names.
        """
        return net

    def grow_as(self, saved: Mapping[str, Tensor]) -> None:
        """Resize the state to that of a saved one, for streams of unknown length."""
        if self.memory is not None:
            self.memory.grow_as({name: saved[f"method/{name}"] for name in self.memory.state()})
        for name, tensor in self.state().items():
            if tensor.shape != saved[f"method/{name}"].shape:
                tensor.resize_(saved[f"method/{name}"].shape)

    def state(self) -> dict[str, Tensor]:
        """Return the tensors to save and restore, not copies of them."""
        tensors = {} if self.memory is None else self.memory.state()
        for name in self.remembers:
            value = getattr(self, name)
            if isinstance(value, Tensor):
                tensors[name] = value
            else:
                tensors.update({f"{name}/{key}": tensor for key, tensor in value.items()})
        return tensors
