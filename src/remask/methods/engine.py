"""What a method sees of the engine: the networks, what is learnt from, and named random numbers."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from remask.config import TrialConfig
from remask.memory import KeptRows, Reservoir
from remask.methods.errors import MethodError
from remask.methods.step import Batch
from remask.nets import LossGradients, StackedNet
from remask.randomness import generator
from remask.streams import Samples, Task

_MOST_TERMS = 16
_TERM = re.compile(r"\w[\w -]{0,39}")


class Engine:
    """What a method may use besides a step, as `self.engine`.

    What is held out for validation has no row here: a method cannot come upon it.
    """

    def __init__(
        self,
        configs: Sequence[TrialConfig],
        *,
        net: StackedNet,
        samples: Samples,
        reservoir: Reservoir | None,
        lr: Tensor,
        input_shape: tuple[int, ...],
        class_sizes: Tensor,
        largest_task: int,
        announced_tasks: int | None,
    ) -> None:
        shape = configs[0]
        self.net = net
        """The networks."""
        self.lr = lr
        """The learning rates at this moment, [S]."""
        self.trials = len(configs)
        """S."""
        self.num_classes = len(class_sizes)
        """K."""
        self.announced_tasks = announced_tasks
        """T; None if nobody knows how many tasks will come."""
        self.input_shape = input_shape
        """The shape of one input."""
        self.class_sizes = class_sizes
        """How many samples of each class are learnt from, as far as they have come: int64 [K]."""
        self.largest_task = largest_task
        """How many samples the largest task has; 0 if nobody knows."""
        self.capacity = shape.buffer
        """How many samples a trial may keep."""
        self.replay_batch = shape.replay_batch
        """How many of them it draws at once."""
        self.batch_size = shape.batch
        """How many samples of the stream a step has."""
        self.epochs = shape.epochs
        """How often a task is passed over."""
        self.device = lr.device
        """Where tensors live."""
        self.noted: dict[str, list[Tensor]] | None = None
        """Where `note` puts what it is given; None: nobody wants it."""
        self._samples, self._reservoir = samples, reservoir
        self._seeds = [config.seed for config in configs]
        self._key: tuple[int, ...] = ()
        self._draws = 0  # since it was set

    @property
    def num_tasks(self) -> int:
        """T, which only a method that says `needs_task_count` may rely on."""
        if self.announced_tasks is None:
            raise MethodError(
                "nobody knows how many tasks will come; a method that must know says so in "
                "needs_task_count"
            )
        return self.announced_tasks

    def name_draws(self, *key: int) -> None:
        """Name what is drawn from now on by task, epoch and step: no random state to save."""
        self._key, self._draws = key, 0
        self.net.name_draws(*key)

    def note(self, name: str, value: Tensor) -> None:
        """Log a term of this step's loss, [S], by name. Does nothing unless losses are logged."""
        if self.noted is None:
            return
        if name == "loss" or name not in self.noted:  # the first time: a step has no time for it
            _check_term(name, self.noted)
            if value.shape != self.lr.shape:
                raise MethodError(
                    f"the term {name!r} must have one entry per trial, {list(self.lr.shape)}, not "
                    f"the shape {list(value.shape)}"
                )
            self.noted[name] = []
        self.noted[name].append(value.detach())

    def batch(self, rows: Tensor, *, augment: bool = True) -> Batch:
        """Samples to learn from, by their rows int64 [S, n], seen as in training."""
        return self._batch(rows, [rows.shape[1]], augment=augment)

    def gradients(self, rows: Tensor, sizes: Sequence[int]) -> list[LossGradients]:
        """The gradients of the mean cross-entropy of each of several batches.

        Their rows lie side by side, int64 [S, sum of sizes].
        """
        found: list[LossGradients] = []
        first = 0
        for together in _together(sizes, self.net.samples_at_once):
            last = first + sum(together)
            batch = self._batch(rows[:, first:last], together, augment=True)
            found += self.net.batch_gradients(batch.inputs, batch.labels, together)
            first = last
        return found

    def recall(self, size: int) -> Batch:
        """Samples that the engine's reservoir holds now, drawn without replacement."""
        if self._reservoir is None:
            raise ValueError("there is no reservoir: the method must set draws")
        slots = self.draw(self._reservoir.filled, size)
        inputs, labels = self._reservoir.at(slots)
        named = [(inputs.shape[1], (*self._key, self._draws))]
        return Batch(self._decode(inputs, named), labels, self.net)

    def labels_of(self, rows: Tensor) -> Tensor:
        """The labels of rows, the same in all trials."""
        return self._samples.labels_of(rows)

    def generators(self, purpose: str) -> list[np.random.Generator]:
        """A generator per trial, named by its seed, the purpose and the place in the run."""
        key = self._next_key()
        return [generator(seed, purpose, *key) for seed in self._seeds]

    def draw(self, filled: int, size: int) -> Tensor:
        """Distinct numbers below `filled`, drawn by each trial: int64 [S, min(size, filled)]."""
        size = min(size, filled)
        chosen = [random.choice(filled, size, replace=False) for random in self.generators("draw")]
        return torch.from_numpy(np.stack(chosen)).to(self.device)

    def shuffled(self, task: Task, purpose: str) -> Iterator[Tensor]:
        """The batches of one pass over a task, in an order that each trial draws: int64 [S, B]."""
        orders = [random.permutation(len(task.rows)) for random in self.generators(purpose)]
        rows = task.rows[torch.from_numpy(np.stack(orders)).to(self.device)]
        yield from torch.split(rows, self.batch_size, dim=1)

    def keeps(
        self,
        places: int,
        *,
        groups: int | None = None,
        apart: bool = False,
        names: tuple[str, str] = ("rows", "sizes"),
    ) -> KeptRows:
        """An empty memory of rows, for a method's `memory`; see `KeptRows`."""
        return KeptRows(
            trials=self.trials,
            places=places,
            groups=groups,
            apart=apart,
            device=self.device,
            names=names,
        )

    def _batch(self, rows: Tensor, sizes: Sequence[int], *, augment: bool) -> Batch:
        """Samples of several batches side by side, each augmented by numbers of its own."""
        keys = [self._next_key() for _ in sizes]
        places = self._samples.places(rows)
        inputs, labels = self._samples.take(places), self._samples.labels[places]
        seen = self._decode(inputs, zip(sizes, keys, strict=True) if augment else ())
        return Batch(seen, labels, self.net)

    def _decode(self, inputs: Tensor, named: Iterable[tuple[int, tuple[int, ...]]]) -> Tensor:
        """What the networks see, so many samples at a time augmented by the numbers of a name."""
        planned = [self._samples.plan_views(1, size, key) for size, key in named]
        views = [plan[0] for plan in planned if plan is not None]
        return self._samples.decode(torch.cat(views, dim=1) if views else None, inputs)

    def _next_key(self) -> tuple[int, ...]:
        self._draws += 1
        return (*self._key, self._draws)


def _together(sizes: Sequence[int], most: int) -> list[list[int]]:
    """Sizes in groups, whose sums are `most` at most unless one alone is more."""
    groups: list[list[int]] = []
    for size in sizes:
        if groups and sum(groups[-1]) + size <= most:
            groups[-1].append(size)
        else:
            groups.append([size])
    return groups


def _check_term(name: str, known: Collection[str]) -> None:
    if name == "loss" or not _TERM.fullmatch(name):
        raise MethodError(
            f"{name!r} cannot name a term of a loss: up to 40 letters, digits, spaces, - and _ "
            f"can, except `loss`, which is the total"
        )
    if len(known) > _MOST_TERMS:
        raise MethodError(
            f"a method can note {_MOST_TERMS} terms, and {name!r} would be one more: the name of a "
            f"term must not change from step to step"
        )
