"""DER++ on an MLP in plain PyTorch: what the engine is compared with.

The data is ready as float tensors and batches are slices of a permutation, without a DataLoader;
three forwards, torch.optim.SGD, and a reservoir that is offered one sample at a time.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from remask.config import TrialConfig
from remask.data.benchmark import Benchmark
from remask.nets.builders import mlp


class Buffer:
    """A reservoir as it is commonly written."""

    def __init__(self, size: int, shape: tuple[int, ...], num_classes: int) -> None:
        self.size, self.seen = size, 0
        self.examples = torch.zeros(size, *shape)
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
        """Draw without replacement."""
        filled = min(self.seen, self.size)
        choice = np.random.choice(filled, size=min(size, filled), replace=False)
        return self.examples[choice], self.labels[choice], self.logits[choice]


def finish(config: TrialConfig, benchmark: Benchmark) -> float:
    """Learn all tasks, measured after each; return the mean Class-IL accuracy, in percent."""
    torch.manual_seed(config.seed)
    np.random.seed(config.seed)
    net = mlp(benchmark.input_shape, benchmark.num_classes)
    optimiser = torch.optim.SGD(net.parameters(), lr=config.lr)
    buffer = Buffer(config.buffer, benchmark.input_shape, benchmark.num_classes)
    accuracies: list[float] = []
    for task in range(benchmark.num_tasks):
        rows = benchmark.train_indices(task)
        inputs, labels = (
            benchmark.train_inputs[rows].float() * benchmark.scale,
            benchmark.train_labels[rows],
        )
        for batch in torch.split(torch.randperm(len(rows)), config.batch):
            outputs = net(inputs[batch])
            loss = F.cross_entropy(outputs, labels[batch])
            if buffer.seen:
                examples, _, logits = buffer.get_data(config.replay_batch)
                loss = loss + config.alpha * F.mse_loss(net(examples), logits)
                examples, past, _ = buffer.get_data(config.replay_batch)
                loss = loss + config.beta * F.cross_entropy(net(examples), past)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            buffer.add_data(inputs[batch], labels[batch], outputs.detach())
        accuracies = [accuracy(net, benchmark, earlier) for earlier in range(task + 1)]
    return float(np.mean(accuracies))


@torch.no_grad()
def accuracy(net: nn.Module, benchmark: Benchmark, task: int) -> float:
    rows = benchmark.test_indices(task)
    parts = torch.split(rows, 256)
    right = [
        net(benchmark.test_inputs[part].float() * benchmark.scale).argmax(1)
        == benchmark.test_labels[part]
        for part in parts
    ]
    return 100 * float(torch.cat(right).float().mean())
