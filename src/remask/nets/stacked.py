"""The interface of stacked networks, and gradients that keep trials apart."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, MutableMapping, Sequence
from functools import reduce

import torch
from torch import Tensor, nn
from torch.func import stack_module_state
from typing_extensions import override

from remask.losses import logit_mse

Gradients = MutableMapping[str, Tensor]
"""By the parameters' names, in their order, each [S, ...]."""


class LossGradients(dict[str, Tensor]):
    """The gradients of the trials' losses, by the parameters' names, each [S, ...]."""

    def inner(self, other: Mapping[str, Tensor]) -> Tensor:
        """The inner product of each trial's gradients with those of another loss: [S]."""
        shared = {name: own for name, own in self.items() if name in other}
        if not shared:  # losses that depend on different parameters
            some = next(iter(self.values()))
            return some.new_zeros(len(some))
        return inner(shared, other)

    def add(self, other: Mapping[str, Tensor], shares: Tensor | None = None) -> None:
        """Add those of another loss, times one share per trial [S] if given."""
        for name, more in other.items():
            own = self[name] if name in self else torch.zeros_like(more)
            shared = own.new_ones(()) if shares is None else per_trial(shares, more)
            self[name] = torch.addcmul(own, more, shared)


class SampleGradients(ABC):
    """The gradients of the cross-entropies of n single samples."""

    @abstractmethod
    def inner(self, other: "SampleGradients") -> Tensor:
        """All inner products with those of m samples of the same stack: [S, n, m]."""

    @abstractmethod
    def squares(self, weights: Tensor) -> Gradients:
        """The sums over samples of weight [S, n] times squared gradient, per parameter."""


def per_trial(values: Tensor, like: Tensor) -> Tensor:
    """One number per trial, [S], in the shape that multiplies a tensor [S, ...]."""
    return values.view(-1, *[1] * (like.ndim - 1))


def inner(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> Tensor:
    """The inner products of each trial's gradients: [S]."""
    products = []
    for name, own in one.items():
        pairs = zip(own.flatten(1), other[name].flatten(1), strict=True)
        # Trial by trial and aligned, as in `trial_products`.
        products.append(torch.stack([torch.dot(aligned(a), aligned(b)) for a, b in pairs]))
    return reduce(torch.add, products)


def trial_sums(values: Tensor) -> Tensor:
    """The sum of each trial's numbers: [S, ...] -> [S].

    Trial by trial: the last bits of a sum over an axis depend on the other axes, and a trial must
    have the same result in any stack.
    """
    return torch.stack([own.sum() for own in values.flatten(1)])


def trial_products(left: Tensor, right: Tensor) -> Tensor:
    """The matrix product of each trial: [S, n, k] x [S, k, m] -> [S, n, m].

    Trial by trial on a CPU, on aligned matrices: the last bits of a batched product depend on the
    size of the batch, and those of a single one on the alignment of its matrices.
    """
    if left.device.type != "cpu":
        return torch.bmm(left, right)
    pairs = zip(left.unbind(), right.unbind(), strict=True)
    return torch.stack([torch.mm(aligned(one), aligned(other)) for one, other in pairs])


def aligned(matrix: Tensor) -> Tensor:
    """The matrix, or a copy of it that starts at a multiple of 64 bytes."""
    if matrix.device.type != "cpu":
        return matrix
    return matrix if matrix.data_ptr() % 64 == 0 else matrix.clone()


class PlainGradients(SampleGradients):
    """Gradients of single samples by name, each [S, n, ...]."""

    def __init__(self, gradients: Gradients) -> None:
        self._gradients = gradients

    @override
    def inner(self, other: SampleGradients) -> Tensor:
        assert isinstance(other, PlainGradients)  # of the same stack
        products = [
            trial_products(own.flatten(2), other._gradients[name].flatten(2).mT)
            for name, own in self._gradients.items()
        ]
        return torch.stack(products).sum(0)

    @override
    def squares(self, weights: Tensor) -> Gradients:
        return {
            name: torch.einsum("sn...,sn->s...", own.square(), weights)
            for name, own in self._gradients.items()
        }


State = dict[str, Tensor]
"""Parameters and buffers of the networks by name, each [S, ...]."""


class StackedNet(ABC):
    """S networks that are evaluated and updated together."""

    parameters: dict[str, Tensor]
    """Name -> [S, ...]: leaves; parameters that the nets had frozen require no gradient."""
    buffers: dict[str, Tensor]
    """Name -> [S, ...]: running statistics and the like."""
    module: nn.Module
    """The architecture; its own parameters are not used."""
    samples_at_once: int
    """How many single samples' gradients fit into memory."""
    couples_samples: bool
    """Whether a sample's logits depend on the rest of its batch in training (batch statistics)."""
    statistics: frozenset[str] = frozenset()
    """The names of the buffers with batch statistics."""

    @abstractmethod
    def __call__(self, inputs: Tensor, parameters: Mapping[str, Tensor] | None = None) -> Tensor:
        """Logits in training, with other parameters if given: [S, B, *shape] -> [S, B, K]."""

    @abstractmethod
    def predict(self, inputs: Tensor) -> Tensor:
        """Logits in evaluation, without a graph, of shared inputs: [B, *shape] -> [S, B, K]."""

    @abstractmethod
    def evaluate(self, inputs: Tensor, state: State | None = None) -> Tensor:
        """Logits in evaluation, without a graph, with another state if given.

        [S, B, *shape] -> [S, B, K].
        """

    def teach(self, inputs: Tensor, state: State) -> Tensor:
        """Logits of a teacher, a copy of the nets, without a graph: [S, B, *shape] -> [S, B, K].

        As in evaluation, but normalised by the statistics of this batch, which update the teacher's
        state. Its running statistics would belong to other weights.
        """
        return self.evaluate(inputs, state)

    @abstractmethod
    def features(self, inputs: Tensor, *, training: bool) -> Tensor:
        """The inputs of the last linear layer: [S, B, *shape] -> [S, B, F]."""

    @abstractmethod
    def head(self, features: Tensor) -> Tensor:
        """The last linear layer, applied to `features`: [S, B, F] -> [S, B, K]."""

    def gradients(self, loss: Tensor) -> LossGradients:
        """The gradients of the trials' losses [S]."""
        trained = {n: value for n, value in self.parameters.items() if value.requires_grad}
        # One backward pass for all trials: the gradient of each loss by itself is 1.
        found: tuple[Tensor | None, ...] = torch.autograd.grad(
            loss, list(trained.values()), torch.ones_like(loss), allow_unused=True
        )
        named = zip(trained, found, strict=True)
        return LossGradients({n: gradient for n, gradient in named if gradient is not None})

    @abstractmethod
    def batch_gradients(
        self, inputs: Tensor, labels: Tensor, sizes: Sequence[int]
    ) -> list[LossGradients]:
        """The gradients of the mean cross-entropy of each of several batches, in training.

        The batches lie side by side: [S, sum of sizes, *shape].
        """

    @abstractmethod
    def sample_gradients(self, inputs: Tensor, labels: Tensor) -> SampleGradients:
        """The gradients of the cross-entropy of single samples [S, n, *shape], in evaluation."""

    @abstractmethod
    def name_draws(self, *key: int) -> None:
        """Name the random numbers that the nets draw from now on (dropout)."""

    def descend(self, loss: Tensor, lr: Tensor) -> None:
        """One step of gradient descent on the trials' losses [S], with learning rates [S]."""
        self.move(self.gradients(loss), lr)

    @torch.no_grad()
    def move(self, gradients: Mapping[str, Tensor], lr: Tensor) -> None:
        """One step along given gradients, with learning rates [S]."""
        for name, gradient in gradients.items():
            parameter = self.parameters[name]
            parameter.addcmul_(gradient, per_trial(lr, parameter), value=-1)

    @torch.no_grad()
    def moved(self, gradients: Mapping[str, Tensor], lr: Tensor) -> dict[str, Tensor]:
        """The parameters after such a step, without taking it."""
        return {
            name: torch.addcmul(parameter, gradients[name], per_trial(lr, parameter), value=-1)
            if name in gradients
            else parameter.detach()
            for name, parameter in self.parameters.items()
        }

    def gradients_of_change(
        self, inputs: Tensor, gradients: Gradients, lr: Tensor, weight: Tensor
    ) -> LossGradients:
        """The gradients of weight [S] * mean squared change of logits, in training.

        The change is that of the logits of inputs [S, B, *shape] after a step along `gradients`;
        the logits after the step are constants.
        """
        with torch.no_grad():
            after = self(inputs, parameters=self.moved(gradients, lr))
        return self.gradients(weight * logit_mse(self(inputs), after))

    def state(self) -> State:
        """The tensors to save and restore: the live ones, not copies."""
        return {**self.parameters, **self.buffers}


def stacked_state(
    nets: Sequence[nn.Module], device: torch.device | str
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Copies of the nets' parameters and buffers, each name -> [S, ...]."""
    parameters, buffers = stack_module_state(list(nets))
    return (
        {
            name: value.detach().to(device).requires_grad_(value.requires_grad)
            for name, value in parameters.items()
        },
        {name: value.detach().to(device) for name, value in buffers.items()},
    )
