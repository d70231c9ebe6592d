"""What a method may use besides a step: networks, samples and named random numbers."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from remask.config import TrialConfig
from remask.data.samples import Samples
from remask.data.tasks import Task
from remask.errors import MethodError
from remask.memory import KeptRows, Reservoir
from remask.methods.step import Batch
from remask.nets.stacked import LossGradients, StackedNet
from remask.randomness import generator

_MOST_TERMS = 16
_TERM = re.compile(r"\w[\w -]{0,39}")


class Context:
    """Networks, samples and random numbers, as `self.context` of a method.

    Held-out data is invisible to methods.
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
        """The current learning rates, [S]."""
        self.trials = len(configs)
        """S."""
        self.num_classes = len(class_sizes)
        """K."""
        self.announced_tasks = announced_tasks
        """T; None if the number of tasks is unknown."""
        self.input_shape = input_shape
        """The shape of one input."""
        self.class_sizes = class_sizes
        """Training samples per class so far, int64 [K]."""
        self.largest_task = largest_task
        """Size of the largest task; 0 if unknown."""
        self.capacity = shape.buffer
        """Memory size of a trial."""
        self.replay_batch = shape.replay_batch
        """Samples per draw."""
        self.batch_size = shape.batch
        """Stream samples per step."""
        self.epochs = shape.epochs
        """Passes over each task."""
        self.device = lr.device
        """Where tensors live."""
        self.noted: dict[str, list[Tensor]] | None = None
        """Values given to `note`, by name; None: losses are not logged."""
        self._samples, self._reservoir = samples, reservoir
        self._seeds = [config.seed for config in configs]
        self._key: tuple[int, ...] = ()
        self._draws = 0  # since it was set

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
            _check_term(name, self.noted)
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
        found: list[LossGradients] = []
        first = 0
        for together in _together(sizes, self.net.samples_at_once):
            last = first + sum(together)
            batch = self._batch(rows[:, first:last], together, augment=True)
            found += self.net.batch_gradients(batch.inputs, batch.labels, together)
            first = last
        return found

    def recall(self, size: int) -> Batch:
        """Draw from the engine's reservoir, without replacement."""
        if self._reservoir is None:
            raise ValueError("there is no reservoir: the method must set draws")
        slots = self.draw(self._reservoir.filled, size)
        inputs, labels = self._reservoir.at(slots)
        named = [(inputs.shape[1], (*self._key, self._draws))]
        return Batch(self._decode(inputs, named), labels, self.net)

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

    def keeps(
        self,
        places: int,
        *,
        groups: int | None = None,
        apart: bool = False,
        names: tuple[str, str] = ("rows", "sizes"),
    ) -> KeptRows:
        """Return an empty memory of row numbers, for a method's `memory`; see `KeptRows`."""
        return KeptRows(
            trials=self.trials,
            places=places,
            groups=groups,
            apart=apart,
            device=self.device,
            names=names,
        )

    def _batch(self, rows: Tensor, sizes: Sequence[int], *, augment: bool) -> Batch:
        """Return several concatenated batches, each augmented by its own random numbers."""
        keys = [self._next_key() for _ in sizes]
        places = self._samples.places(rows)
        inputs, labels = self._samples.take(places), self._samples.labels[places]
        seen = self._decode(inputs, zip(sizes, keys, strict=True) if augment else ())
        return Batch(seen, labels, self.net)

    def _decode(self, inputs: Tensor, named: Iterable[tuple[int, tuple[int, ...]]]) -> Tensor:
        """Decode and augment inputs; `named` has the size and random key of each batch."""
        planned = [self._samples.plan_views(1, size, key) for size, key in named]
        views = [plan[0] for plan in planned if plan is not None]
        return self._samples.decode(torch.cat(views, dim=1) if views else None, inputs)

    def _next_key(self) -> tuple[int, ...]:
        self._draws += 1
        return (*self._key, self._draws)


def _together(sizes: Sequence[int], most: int) -> list[list[int]]:
    """Group sizes so that no sum exceeds `most`, unless a single one does."""
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
            f"invalid name of a loss term: {name!r}. Use up to 40 letters, digits, spaces, - and "
            f"_, but not `loss`, which is the total"
        )
    if len(known) > _MOST_TERMS:
        raise MethodError(
            f"{name!r} is one term too many: a method can log {_MOST_TERMS}, and their names must "
            f"not change between steps"
        )
