"""The workbench: what a method that is more than a loss may use. The engine implements it."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from remask.methods.base import Batch

Gradients = dict[str, Tensor]
"""By the parameters' names, in their order, each [S, ...]."""
State = dict[str, Tensor]
"""Parameters and buffers of the networks by name, each [S, ...]."""


def spread(values: Tensor, like: Tensor) -> Tensor:
    """One number a trial, [S], in the shape that multiplies a tensor [S, ...]."""
    return values.view(-1, *[1] * (like.ndim - 1))


def inner(one: Gradients, other: Gradients) -> Tensor:
    """The inner products of each trial's gradients: [S]."""
    return reduce(torch.add, [trial_sums(one[name] * other[name]) for name in one])


def trial_sums(values: Tensor) -> Tensor:
    """The sum of each trial's numbers: [S, ...] -> [S].

    Trial by trial, since the last bits of a sum over an axis depend on the axes beside it, and a
    trial must have the same result in any stack.
    """
    return torch.stack([own.sum() for own in values.flatten(1)])


@dataclass(frozen=True, eq=False)
class Task:
    """A task of the stream."""

    number: int
    """Counted from 0."""
    rows: Tensor
    """Its rows of what is learnt from, ascending, the same in all trials: int64 [N]."""
    classes: Tensor
    """bool [K]: its own."""
    seen: Tensor
    """bool [K]: its own, and those of all tasks before it."""

    @property
    def old(self) -> Tensor:
        """Bool [K]: the classes of all tasks before it."""
        return self.seen & ~self.classes


class SampleGradients(Protocol):
    """The gradients of the cross-entropy of n single samples, perhaps in factors."""

    def inner(self, other: "SampleGradients") -> Tensor:
        """All inner products with those of m other samples: [S, n, m]."""

    def squares(self, weights: Tensor) -> Gradients:
        """The sum over samples of weight [S, n] times squared gradient, for each parameter."""


class Net(ABC):
    """S networks that are evaluated and updated together."""

    parameters: dict[str, Tensor]
    """Name -> [S, ...]: leaves; those that the nets had frozen require no gradient."""
    module: nn.Module
    """The network that lends its forward; its own parameters mean nothing."""
    samples_at_once: int
    """Of how many single samples the gradients fit into memory at a time."""

    @abstractmethod
    def __call__(self, inputs: Tensor, parameters: Mapping[str, Tensor] | None = None) -> Tensor:
        """Logits in training, with other parameters if given: [S, B, *shape] -> [S, B, K]."""

    @abstractmethod
    def predict(self, inputs: Tensor) -> Tensor:
        """Logits in evaluation, without a graph, of inputs that all trials share.

        [B, *shape] -> [S, B, K].
        """

    @abstractmethod
    def evaluate(self, inputs: Tensor, state: State | None = None) -> Tensor:
        """Logits in evaluation, without a graph, with another state if given.

        [S, B, *shape] -> [S, B, K].
        """

    @abstractmethod
    def features(self, inputs: Tensor, *, training: bool) -> Tensor:
        """What the last linear layer sees: [S, B, *shape] -> [S, B, F]."""

    @abstractmethod
    def head(self, features: Tensor) -> Tensor:
        """The last linear layer, on what `features` gave: [S, B, F] -> [S, B, K]."""

    @abstractmethod
    def gradients(self, loss: Tensor) -> Gradients:
        """The gradients of the trials' losses [S], of the parameters that they depend on."""

    @abstractmethod
    def descend(self, loss: Tensor, lr: Tensor) -> None:
        """One step of gradient descent on the trials' losses [S], with learning rates [S]."""

    @abstractmethod
    def move(self, gradients: Gradients, lr: Tensor) -> None:
        """One step along given gradients, with learning rates [S]."""

    @abstractmethod
    def sample_gradients(self, inputs: Tensor, labels: Tensor) -> SampleGradients:
        """The gradients of the cross-entropy of single samples [S, n, *shape], in evaluation."""

    @abstractmethod
    def state(self) -> State:
        """The tensors to save and restore; they are the live ones, not copies."""


class Workbench(Protocol):
    """The networks, what is learnt from, and random numbers that have names.

    What is held out for validation has no row here: a method cannot come upon it.
    """

    @property
    def net(self) -> Net:
        """The networks."""

    @property
    def lr(self) -> Tensor:
        """The learning rates at this moment, [S]."""

    @property
    def trials(self) -> int:
        """S."""

    @property
    def num_classes(self) -> int:
        """K."""

    @property
    def num_tasks(self) -> int:
        """T."""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input."""

    @property
    def largest_task(self) -> int:
        """How many samples the largest task has."""

    @property
    def class_sizes(self) -> Tensor:
        """How many samples of each class are learnt from: int64 [K]."""

    @property
    def capacity(self) -> int:
        """How many samples a trial may keep."""

    @property
    def replay_batch(self) -> int:
        """How many of them it draws at once."""

    @property
    def batch_size(self) -> int:
        """How many samples of the stream a step has."""

    @property
    def epochs(self) -> int:
        """How often a task is passed over."""

    @property
    def device(self) -> torch.device:
        """Where tensors live."""

    def batch(self, rows: Tensor, *, augment: bool = True) -> "Batch":
        """Samples to learn from, by their rows int64 [S, n], seen as in training."""

    def recall(self, size: int) -> "Batch":
        """Samples that the engine's reservoir holds now, drawn without replacement."""

    def labels(self, rows: Tensor) -> Tensor:
        """The labels of rows, the same in all trials."""

    def random(self, purpose: str) -> list[np.random.Generator]:
        """A generator for every trial, named by its seed, the purpose and the moment."""

    def draw(self, filled: int, size: int) -> Tensor:
        """Distinct numbers below `filled` for every trial: int64 [S, min(size, filled)]."""

    def shuffled(self, task: Task, purpose: str) -> Iterator[Tensor]:
        """The batches of one pass over a task, in an order of each trial's own: int64 [S, B]."""
