"""DER++ on an MLP as it is commonly written: what the engine's step is measured against.

A DataLoader over float tensors, three forwards, torch.optim.SGD, and a reservoir that is offered
one sample at a time; one trial after the other.
"""

import functools
import statistics
from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from remask.config import TrialConfig
from remask.data.benchmark import Benchmark


@functools.lru_cache(maxsize=1)
def float_tasks(benchmark: Benchmark) -> list[tuple[TensorDataset, TensorDataset]]:
    """The train and test set of each task as float tensors, ready before the clock starts."""

    def part(inputs: Tensor, labels: Tensor, rows: Tensor) -> TensorDataset:
        return TensorDataset(inputs[rows].float() * benchmark.scale, labels[rows])

    return [
        (
            part(benchmark.train_inputs, benchmark.train_labels, benchmark.train_indices(task)),
            part(benchmark.test_inputs, benchmark.test_labels, benchmark.test_indices(task)),
        )
        for task in range(benchmark.num_tasks)
    ]


class TextbookBuffer:
    """A reservoir as it is commonly written."""

    def __init__(
        self,
        size: int,
        shape: tuple[int, ...],
        num_classes: int,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.size, self.seen = size, 0
        self.examples = torch.zeros(size, *shape, dtype=dtype)
        self.labels = torch.zeros(size, dtype=torch.int64)
        self.logits = torch.zeros(size, num_classes)

    def add_data(self, examples: Tensor, labels: Tensor, logits: Tensor) -> None:
        """Offer the samples of a batch one by one."""
        for i in range(len(examples)):
            index = self.seen if self.seen < self.size else np.random.randint(0, self.seen + 1)
            self.seen += 1
            if index < self.size:
                self.examples[index] = examples[i]
                self.labels[index] = labels[i]
                self.logits[index] = logits[i]

    def get_data(self, size: int) -> tuple[Tensor, Tensor, Tensor]:
        """Draw without replacement: (examples, labels, logits)."""
        filled = min(self.seen, self.size)
        choice = np.random.choice(filled, size=min(size, filled), replace=False)
        return self.examples[choice], self.labels[choice], self.logits[choice]


class TextbookTrial:
    """One DER++ trial in plain PyTorch."""

    def __init__(self, config: TrialConfig, benchmark: Benchmark) -> None:
        self.config = config
        self.tasks = float_tasks(benchmark)
        torch.manual_seed(config.seed)
        np.random.seed(config.seed)
        shape, num_classes = benchmark.input_shape, benchmark.num_classes
        self.net = nn.Sequential(
            nn.Flatten(),
            nn.Linear(int(np.prod(shape)), 100),
            nn.ReLU(),
            nn.Linear(100, 100),
            nn.ReLU(),
            nn.Linear(100, num_classes),
        )
        for layer in self.net:
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(layer.bias)
        self.optimiser = torch.optim.SGD(self.net.parameters(), lr=config.lr)
        self.buffer = TextbookBuffer(config.buffer, shape, num_classes)

    def steps(self, *, evaluate: bool = False) -> Iterator[None]:
        """Train task after task, yielding after every step."""
        config = self.config
        for task, (train, _) in enumerate(self.tasks):
            for _ in range(config.epochs):
                for inputs, labels in DataLoader(
                    train, batch_size=config.batch, shuffle=True, num_workers=0
                ):
                    self.step(inputs, labels)
                    yield
            if evaluate:
                self.accuracy(task + 1)

    def step(self, inputs: Tensor, labels: Tensor) -> None:
        """Learn from a batch and two draws, then remember the batch."""
        config, buffer = self.config, self.buffer
        self.optimiser.zero_grad()
        outputs = self.net(inputs)
        loss = F.cross_entropy(outputs, labels)
        if buffer.seen:
            examples, _, logits = buffer.get_data(config.replay_batch)
            loss = loss + config.alpha * F.mse_loss(self.net(examples), logits)
            examples, old_labels, _ = buffer.get_data(config.replay_batch)
            loss = loss + config.beta * F.cross_entropy(self.net(examples), old_labels)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        buffer.add_data(inputs, labels, outputs.detach())

    @torch.no_grad()
    def accuracy(self, tasks: int) -> float:
        """The mean Class-IL accuracy of the first tasks, in percent."""
        shares = []
        for _, test in self.tasks[:tasks]:
            right = 0
            for inputs, labels in DataLoader(test, batch_size=256):
                right += int((self.net(inputs).argmax(1) == labels).sum())
            shares.append(100 * right / len(test))
        return statistics.mean(shares)

    def finish(self) -> float:
        """Run to the end, testing after every task, and return the final accuracy."""
        for _ in self.steps(evaluate=True):
            pass
        return self.accuracy(len(self.tasks))
