"""The base class of methods, and the context in which they compute.

A loss has one entry per trial, [S]; no reduction crosses trials.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from remask.config import TrialConfig
from remask.data.samples import Samples
from remask.data.tasks import DataDescription, Task
from remask.errors import MethodError
from remask.memory import KeptRows, Reservoir
from remask.methods.step import Batch, Step, Term, total
from remask.nets.builders import NetBuilder
from remask.nets.stacked import Gradients, LossGradients, StackedNet
from remask.randomness import generator

_MOST_TERMS = 16
_TERM = re.compile(r"\w[\w -]{0,39}")


class Context:
    """What a method may use besides a step, as `self.context`: networks, samples, random numbers.

    Held-out data is invisible to methods.
    """

    def __init__(
        self,
        configs: Sequence[TrialConfig],
        data: DataDescription,
        *,
        net: StackedNet,
        samples: Samples,
        reservoir: Reservoir | None,
        lr: Tensor,
        class_sizes: Tensor,
        largest_task: int,
    ) -> None:
        config = configs[0]
        self.net = net
        """The networks."""
        self.lr = lr
        """The current learning rates, [S]."""
        self.trials = len(configs)
        """S."""
        self.num_classes = data.num_classes
        """K."""
        self.announced_tasks = data.num_tasks
        """T; None if the number of tasks is unknown."""
        self.input_shape = data.input_shape
        """The shape of one input."""
        self.class_sizes = class_sizes
        """Training samples per class so far, int64 [K]."""
        self.largest_task = largest_task
        """Size of the largest task; 0 if unknown."""
        self.capacity = config.buffer
        """Memory size of a trial."""
        self.replay_batch = config.replay_batch
        """Samples per draw."""
        self.batch_size = config.batch
        """Stream samples per step."""
        self.sums_batches = config.protocol == "online"
        """Whether the losses of stream and replay are summed, not averaged over all samples."""
        self.epochs = config.epochs
        """Passes over each task."""
        self.device = lr.device
        """Where tensors live."""
        self.noted: dict[str, list[Tensor]] | None = None
        """Values given to `note`, by name; None: losses are not logged."""
        self.reservoir = reservoir
        """The engine's memory, for methods with `draws`."""
        self._samples = samples
        self._seeds = [config.seed for config in configs]
        self._key: tuple[int, ...] = ()
        self._draws = 0  # since the key was set

    @property
    def num_tasks(self) -> int:
        """T; only for methods that set `needs_task_count`."""
        if self.announced_tasks is None:
            raise MethodError(
                "the number of tasks is unknown; a method that depends on it must set "
                "needs_task_count"
            )
        return self.announced_tasks

    def name_draws(self, *key: int) -> None:
        """Key the following draws by task, epoch and step, so that no random state is saved."""
        self._key, self._draws = key, 0
        self.net.name_draws(*key)

    def note(self, name: str, value: Tensor) -> None:
        """Log a term of this step's loss, [S]; does nothing unless losses are logged."""
        if self.noted is None:
            return
        if name == "loss" or name not in self.noted:  # checked once, not in every step
            if name == "loss" or not _TERM.fullmatch(name) or len(self.noted) > _MOST_TERMS:
                raise MethodError(
                    f"invalid name of a loss term: {name!r}. Use up to 40 letters, digits, spaces, "
                    f"- and _, but not `loss`, which is the total, and the same names, at most "
                    f"{_MOST_TERMS}, in all steps"
                )
            if value.shape != self.lr.shape:
                raise MethodError(
                    f"the term {name!r} must have one entry per trial, {list(self.lr.shape)}, not "
                    f"the shape {list(value.shape)}"
                )
            self.noted[name] = []
        self.noted[name].append(value.detach())

    def batch(self, rows: Tensor, *, augment: bool = True) -> Batch:
        """Return training samples by row number, int64 [S, n], augmented as in training."""
        return self._batch(rows, [rows.shape[1]], augment=augment)

    def gradients(self, rows: Tensor, sizes: Sequence[int]) -> list[LossGradients]:
        """Return the gradients of the mean cross-entropy of each of several batches.

        Their row numbers are concatenated, int64 [S, sum of sizes].
        """
        groups: list[list[int]] = []  # as many batches at once as fit into memory
        for size in sizes:
            if groups and sum(groups[-1]) + size <= self.net.samples_at_once:
                groups[-1].append(size)
            else:
                groups.append([size])
        found: list[LossGradients] = []
        for own, group in zip(torch.split(rows, [*map(sum, groups)], 1), groups, strict=True):
            batch = self._batch(own, group, augment=True)
            found += self.net.batch_gradients(batch.inputs, batch.labels, group)
        return found

    def recall(self, size: int) -> Batch:
        """Draw from the engine's reservoir, without replacement."""
        if self.reservoir is None:
            raise ValueError("there is no reservoir: the method must set draws")
        slots = self.draw(self.reservoir.filled, size)
        inputs, labels, _ = self.reservoir.recall(self.reservoir.rows_of(slots))
        named = [(inputs.shape[1], (*self._key, self._draws))]
        return Batch.alone(self._decode(inputs, named), labels, self.net)

    def labels_of(self, rows: Tensor) -> Tensor:
        """Return the labels of row numbers."""
        return self._samples.labels_of(rows)

    def generators(self, purpose: str) -> list[np.random.Generator]:
        """Return a generator per trial, keyed by seed, purpose and position in the run."""
        key = self._next_key()
        return [generator(seed, purpose, *key) for seed in self._seeds]

    def draw(self, filled: int, size: int) -> Tensor:
        """Draw distinct numbers below `filled` per trial: int64 [S, min(size, filled)]."""
        size = min(size, filled)
        chosen = [random.choice(filled, size, replace=False) for random in self.generators("draw")]
        return torch.from_numpy(np.stack(chosen)).to(self.device)

    def shuffled(self, task: Task, purpose: str) -> Iterator[Tensor]:
        """Yield the row numbers of one shuffled pass over a task: int64 [S, B]."""
        orders = [random.permutation(len(task.rows)) for random in self.generators(purpose)]
        rows = task.rows[torch.from_numpy(np.stack(orders)).to(self.device)]
        yield from torch.split(rows, self.batch_size, dim=1)

    def keeps(self, places: int, *, groups: int = 1) -> KeptRows:
        """Return an empty memory of row numbers, for a method's `memory`; see `KeptRows`."""
        return KeptRows(trials=self.trials, places=places, groups=groups, device=self.device)

    def _batch(self, rows: Tensor, sizes: Sequence[int], *, augment: bool) -> Batch:
        """Return several concatenated batches, each augmented by its own random numbers."""
        keys = [self._next_key() for _ in sizes]
        places = self._samples.places(rows)
        inputs, labels = self._samples.take(places), self._samples.labels[places]
        seen = self._decode(inputs, list(zip(sizes, keys, strict=True)) if augment else [])
        return Batch.alone(seen, labels, self.net)

    def _decode(self, inputs: Tensor, named: Sequence[tuple[int, tuple[int, ...]]]) -> Tensor:
        """Decode and augment inputs; `named` has the size and random key of each batch."""
        planned = [self._samples.plan_views(1, size, key) for size, key in named]
        views = [plan[0] for plan in planned if plan is not None]
        return self._samples.decode(torch.cat(views, dim=1) if views else None, inputs)

    def _next_key(self) -> tuple[int, ...]:
        self._draws += 1
        return (*self._key, self._draws)


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
    least_per: ClassVar[Literal["memory", "task", "class"]] = "memory"
    """Whether the smallest memory has one sample, or one per task or class."""
    uses_tasks: ClassVar[bool] = False
    """Whether it needs to know where a task begins or ends; True if it defines `begin_task` or
    `end_task`, unless it says otherwise."""
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
    fixed_terms: ClassVar[bool] = False
    """Whether the terms are the same in all steps of a task whose batches have the same sizes,
    except for `Step.faded`. Compiled steps then ask for them once. A subclass with its own `terms`
    must set it again."""
    slow_copy: ClassVar[str | None] = None
    """The attribute with the copy of the networks that all of `after_step` is to update, by the
    share that `following` returns for the number of `steps`. Compiled steps do the same. A subclass
    with its own `after_step` must set it again."""
    ridge: ClassVar[float | None] = None
    """If set, all of `adjust_gradients` is to add what `gem.solve` finds with this ridge, for the
    gradients of the batches of `references`. Compiled steps do the same. A subclass with its own
    `adjust_gradients` must set it again."""
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
        if "begin_task" in vars(cls) or "end_task" in vars(cls):
            cls.uses_tasks = vars(cls).get("uses_tasks", True)
        if "terms" in vars(cls):
            cls.fixed_terms = vars(cls).get("fixed_terms", False)
        if "after_step" in vars(cls):
            cls.slow_copy = vars(cls).get("slow_copy")
        if "adjust_gradients" in vars(cls):
            cls.ridge = vars(cls).get("ridge")
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
        return {"task": num_tasks, "class": num_classes, "memory": 1}[cls.least_per]

    @classmethod
    def uses_replay_batch(cls) -> bool:
        """Whether it draws from memory."""
        return cls.draws > 0 or cls.own_memory == "drawn"

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
        raise NotImplementedError

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

    def state(self) -> dict[str, Tensor]:
        """Return the tensors to save and restore, not copies of them."""
        tensors = {} if self.memory is None else self.memory.state()
        for name in self.remembers:
            value = getattr(self, name)
            parts = {"": value} if isinstance(value, Tensor) else value
            tensors |= {f"{name}/{key}".rstrip("/"): tensor for key, tensor in parts.items()}
        return tensors
