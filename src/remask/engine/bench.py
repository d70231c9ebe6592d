"""The workbench that a stack gives to its method: networks, train set, named random numbers."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from remask.benchmarks import Benchmark
from remask.config import TrialConfig
from remask.engine.feed import Feed
from remask.engine.stacked_net import StackedNet
from remask.methods import Batch, Task
from remask.randomness import generator
from remask.streams import Part


class Bench:
    """What a method may use beside a step; see `remask.methods.workbench.Workbench`."""

    def __init__(
        self,
        benchmark: Benchmark,
        learnt: Part,
        configs: Sequence[TrialConfig],
        net: StackedNet,
        feed: Feed,
        lr: Tensor,
    ) -> None:
        shape = configs[0]
        self.net = net
        self.lr = lr
        self.trials = len(configs)
        self.num_classes, self.num_tasks = benchmark.num_classes, benchmark.num_tasks
        self.input_shape = benchmark.input_shape
        self.class_sizes = torch.bincount(learnt.labels, minlength=self.num_classes)
        self.largest_task = max(int(self.class_sizes[list(task)].sum()) for task in benchmark.tasks)
        self.capacity, self.replay_batch = shape.buffer, shape.replay_batch
        self.batch_size, self.epochs = shape.batch, shape.epochs
        self.device = lr.device
        self._feed = feed
        self._seeds = [config.seed for config in configs]
        self._moment: tuple[int, ...] = ()
        self._calls = 0  # since that moment

    def at(self, lr: Tensor, *moment: int) -> None:
        """Be told the time, which names what is drawn: there is no random state to save."""
        self.lr = lr
        self._moment, self._calls = moment, 0
        self.net.at(*moment)

    def batch(self, rows: Tensor, *, augment: bool = True) -> Batch:
        """Samples to learn from, by their rows int64 [S, n], seen as in training."""
        self._calls += 1
        key = (*self._moment, self._calls)
        return self._feed.batch(rows, views_key=key if augment else None)

    def recall(self, size: int) -> Batch:
        """Samples that the engine's reservoir holds now, drawn without replacement."""
        slots = self.draw(self._feed.filled(self._moment[0]), size)
        return self._feed.recall(slots, views_key=(*self._moment, self._calls))

    def labels(self, rows: Tensor) -> Tensor:
        """The labels of rows of what is learnt from."""
        return self._feed.labels(rows)

    def random(self, purpose: str) -> list[np.random.Generator]:
        """A generator for every trial, named by its seed, the purpose and the moment."""
        self._calls += 1
        return [generator(seed, purpose, *self._moment, self._calls) for seed in self._seeds]

    def draw(self, filled: int, size: int) -> Tensor:
        """Distinct numbers below `filled` for every trial: int64 [S, min(size, filled)]."""
        size = min(size, filled)
        chosen = [random.choice(filled, size, replace=False) for random in self.random("draw")]
        return torch.from_numpy(np.stack(chosen)).to(self.device)

    def shuffled(self, task: Task, purpose: str) -> Iterator[Tensor]:
        """The batches of one pass over a task, in an order of each trial's own: int64 [S, B]."""
        orders = [random.permutation(len(task.rows)) for random in self.random(purpose)]
        rows = task.rows[torch.from_numpy(np.stack(orders)).to(self.device)]
        yield from torch.split(rows, self.batch_size, dim=1)
