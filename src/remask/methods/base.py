"""What a method is: a loss over the batches of one step, and perhaps more.

A loss has one entry per trial, [S]; no reduction crosses trials.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from remask.memory import KeptRows
from remask.methods.engine import Engine
from remask.methods.errors import MethodError
from remask.methods.step import Step, Term, total
from remask.nets import Gradients, LossGradients, NetBuilder
from remask.streams import Task


class Method:
    """A way to learn from a stream. A subclass is mainly its loss.

    Most methods are a loss and a few declarations. One that needs more may adjust the gradients,
    act after a step and where a task begins or ends, and predict in its own way; `self.engine` then
    has the networks, the data and named random numbers. Nothing may be computed across trials.
    """

    name: ClassVar[str] = ""
    """Its name on the command line, and in the published settings."""
    title: ClassVar[str]
    """Its name in tables; the name of the class unless it says otherwise."""
    weights: ClassVar[Mapping[str, float]] = {}
    """Its loss weights, each with its value where none is published; each becomes an attribute, a
    tensor [S]."""
    trains_net: ClassVar[bool] = True
    """Whether steps follow the gradient of a loss. If not, the method learns in `after_step` and
    `end_task` alone, passes over each task once, and has no loss and no learning rate."""
    draws: ClassVar[int] = 0
    """How many independent draws it makes in a step from a reservoir that the engine keeps."""
    stores_logits: ClassVar[bool] = False
    """Whether the reservoir keeps the logits of the moment of insertion."""
    one_forward: ClassVar[bool] = False
    """Whether stream and replay go through the network as one batch. It matters to batch
    statistics only; without them, the engine always takes one forward."""
    own_memory: ClassVar[Literal["no", "whole", "drawn"]] = "no"
    """Whether it keeps samples itself, up to the buffer's size, and uses all of them, or draws as
    many as the replay batch has."""
    learns: ClassVar[Literal["tasks", "union"]] = "tasks"
    """Task after task, or all tasks at once at the end."""
    needs_task_count: ClassVar[str | None] = None
    """What it does for which it must know how many tasks will come, if it must: "divides ..."."""
    usual_mask: ClassVar[float | None] = None
    """The mask it has unless one is given."""
    usual_fade: ClassVar[float] = 0.0
    """How its mask fades unless that is given; see `TrialConfig.fade`."""
    unmaskable: ClassVar[str | None] = None
    """Why it cannot have a mask, if it cannot."""
    works_on_host: ClassVar[str | None] = None
    """Why a step of it must wait for values from the device, if it must."""
    ungrowable: ClassVar[str | None] = None
    """Why its head cannot grow, if it cannot. If it can, what it remembers of a new class begins at
    0, in every axis of classes."""
    class_il: ClassVar[bool] = True
    """Whether it can tell classes of different tasks apart without being told the task."""
    confidence: ClassVar[bool] = True
    """Whether the softmax of its scores is a probability."""
    remembers: ClassVar[tuple[str, ...]] = ()
    """Names of attributes that change from step to step and are to be saved and restored: tensors
    [S, ...], or dicts of them, made in `prepare`, whose shapes never change."""
    predicts_with: ClassVar[tuple[str, ...]] = ()
    """Those of them that `scores` uses besides the networks."""

    memory: KeptRows | None = None
    """The samples that it keeps itself, made in `prepare`; saved and restored, too."""
    engine: Engine
    """What it may use besides a step; there from `prepare` on."""

    def __init_subclass__(cls) -> None:
        cls.title = cls.__dict__.get("title", cls.__name__)  # not the one of the class above
        if "scores" in vars(cls) and "own_scores" not in vars(cls):
            # That of the class above would say what its `scores` says, not what this one's does.
            cls.own_scores = Method.own_scores  # type: ignore[method-assign]

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
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

    def begin_step(self, step: Step) -> None:
        """Called before the loss; it may add what is learnt from besides, by `step.replay`."""

    def loss(self, step: Step) -> Tensor:
        """The loss of each trial, [S]: any differentiable one."""
        return total(self.terms(step))

    def terms(self, step: Step) -> list[Term]:
        """The loss as a sum of terms on the step's batches, in place of `loss`.

        A chain of linear layers then follows it without autograd, which is faster.
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
        """How many samples every epoch of a task has besides its own; known before the run."""
        return 0

    def extra_rows(self, task: Task) -> Tensor:
        """Their rows, the same in all epochs of the task: int64 [S, extra_samples]."""
        return torch.empty((self.engine.trials, 0), dtype=torch.int64, device=self.engine.device)

    def scores(self, inputs: Tensor, task: int) -> Tensor:
        """Rate the classes for test inputs [B, *shape]: [S, B, K], the highest wins.

        With `class_il`, inputs of several tasks come together, and `task` is the latest of them:
        do not use it. Without, it is the task of all inputs.
        """
        return self.engine.net.predict(inputs)

    def own_scores(self, inputs: Tensor, task: int) -> Tensor:
        """Rate the classes for inputs of each trial's own, [S, B, *shape]: [S, B, K].

        It is what `scores` says of them; a method that defines both has to see to that.
        """
        if type(self).scores is Method.scores:
            return self.engine.net.evaluate(inputs)
        return torch.stack([self.scores(own, task)[trial] for trial, own in enumerate(inputs)])

    @classmethod
    def predictor(cls, net: nn.Module, own: Mapping[str, Tensor]) -> nn.Module:
        """An ordinary module that scores as `scores` does, for one trial: [B, *shape] -> [B, K].

        `net` has the trial's weights. `own` has the trial's part of what `predicts_with` names.
        """
        return net

    def grow_as(self, saved: Mapping[str, Tensor]) -> None:
        """Take the shapes of a saved state, where tasks come that were not known ahead."""
        if self.memory is not None:
            self.memory.grow_as({name: saved[f"method/{name}"] for name in self.memory.state()})
        for name, tensor in self.state().items():
            if tensor.shape != saved[f"method/{name}"].shape:
                tensor.resize_(saved[f"method/{name}"].shape)

    def state(self) -> dict[str, Tensor]:
        """The tensors to save and restore; the live ones, not copies."""
        tensors = {} if self.memory is None else self.memory.state()
        for name in self.remembers:
            value = getattr(self, name)
            if isinstance(value, Tensor):
                tensors[name] = value
            else:
                tensors.update({f"{name}/{key}": tensor for key, tensor in value.items()})
        return tensors
