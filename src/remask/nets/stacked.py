"""A stack of networks: what it can do, whichever way it does it. The engine has two ways."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import stack_module_state

from remask.losses import logit_mse
from remask.nets.gradients import Factors, LossGradients, SampleGradients
from remask.nets.trialwise import per_trial

State = dict[str, Tensor]
"""Parameters and buffers of the networks by name, each [S, ...]."""


class Trace(NamedTuple):
    """A forward: the inputs of each layer, and what the last one says."""

    hidden: Sequence[Tensor]
    logits: Tensor


class StackedNet(ABC):
    """S networks that are evaluated and updated together."""

    parameters: dict[str, Tensor]
    """Name -> [S, ...]: leaves; those that the nets had frozen require no gradient."""
    buffers: dict[str, Tensor]
    """Name -> [S, ...]: what the networks keep besides parameters (running statistics)."""
    module: nn.Module
    """The network that lends its forward; its own parameters mean nothing."""
    samples_at_once: int
    """The gradients of so many single samples fit into memory at a time."""
    couples_samples: bool
    """Whether a sample's logits depend on the rest of its batch in training (batch statistics)."""
    statistics: frozenset[str] = frozenset()
    """The buffers in which batches leave their statistics, by name."""

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

    def teach(self, inputs: Tensor, state: State) -> Tensor:
        """Logits of a copy that teaches, without a graph: [S, B, *shape] -> [S, B, K].

        As in evaluation, but with the statistics of this batch, which the copy keeps count of in
        its state. Its running ones would fit other weights: early on its logits would be absurd.
        """
        return self.evaluate(inputs, state)

    @abstractmethod
    def features(self, inputs: Tensor, *, training: bool) -> Tensor:
        """What the last linear layer sees: [S, B, *shape] -> [S, B, F]."""

    @abstractmethod
    def head(self, features: Tensor) -> Tensor:
        """The last linear layer, on what `features` gave: [S, B, F] -> [S, B, K]."""

    @abstractmethod
    def gradients(self, loss: Tensor) -> LossGradients:
        """The gradients of the trials' losses [S], of the parameters that they depend on."""

    def descend(self, loss: Tensor, lr: Tensor) -> None:
        """One step of gradient descent on the trials' losses [S], with learning rates [S]."""
        self.move(self.gradients(loss), lr)

    traces = False
    """Whether it can follow a gradient of the logits without autograd: the next three methods."""

    def trace(self, inputs: Tensor) -> "Trace":
        """A forward in training, with what its backward needs: [S, B, *shape]."""
        raise NotImplementedError

    def factors(self, trace: "Trace", slope: Tensor) -> Factors:
        """The gradients of a loss whose gradient in the logits is `slope` [S, B, K]."""
        raise NotImplementedError

    def factored(self, factors: Factors) -> LossGradients:
        """The same, as `gradients` gives them."""
        raise NotImplementedError

    @abstractmethod
    def batch_gradients(
        self, inputs: Tensor, labels: Tensor, sizes: Sequence[int]
    ) -> list[LossGradients]:
        """The gradients of the mean cross-entropy of each of several batches, in training.

        They lie side by side: [S, sum of sizes, *shape].
        """

    @abstractmethod
    def sample_gradients(self, inputs: Tensor, labels: Tensor) -> SampleGradients:
        """The gradients of the cross-entropy of single samples [S, n, *shape], in evaluation."""

    @abstractmethod
    def name_draws(self, *key: int) -> None:
        """Name what the nets draw from now on (dropout): there is no random state to save."""

    @torch.no_grad()
    def move(self, gradients: Mapping[str, Tensor], lr: Tensor) -> None:
        """One step along given gradients, with learning rates [S]."""
        for name, gradient in gradients.items():
            parameter = self.parameters[name]
            parameter.addcmul_(gradient, per_trial(lr, parameter), value=-1)

    @torch.no_grad()
    def moved(self, gradients: Mapping[str, Tensor], lr: Tensor) -> dict[str, Tensor]:
        """The parameters after such a step, which is not taken."""
        return {
            name: torch.addcmul(parameter, gradients[name], per_trial(lr, parameter), value=-1)
            if name in gradients
            else parameter.detach()
            for name, parameter in self.parameters.items()
        }

    def gradients_of_change(
        self, inputs: Tensor, gradients: LossGradients, lr: Tensor, weight: Tensor
    ) -> LossGradients:
        """The gradients of weight [S] * mean squared change of logits, in training.

        The change is what such a step would make to the logits of inputs [S, B, *shape]; where it
        would lead is a constant.
        """
        with torch.no_grad():
            after = self(inputs, parameters=self.moved(gradients, lr))
        return self.gradients(weight * logit_mse(self(inputs), after))

    def state(self) -> State:
        """The tensors to save and restore; they are the live ones, not copies."""
        return {**self.parameters, **self.buffers}


def stacked_state(
    nets: Sequence[nn.Module], device: torch.device | str
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The nets' parameters and buffers, each name -> [S, ...], as copies that belong to a stack."""
    parameters, buffers = stack_module_state(list(nets))
    return (
        {
            name: value.detach().to(device).requires_grad_(value.requires_grad)
            for name, value in parameters.items()
        },
        {name: value.detach().to(device) for name, value in buffers.items()},
    )
