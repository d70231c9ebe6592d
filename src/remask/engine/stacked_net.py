"""What a stack of networks can do, whichever way it does it."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import stack_module_state


class StackedNet(ABC):
    """S networks that are evaluated and updated together."""

    parameters: dict[str, Tensor]
    """Name -> [S, ...]: leaves; those that the nets had frozen require no gradient."""
    buffers: dict[str, Tensor]
    """Name -> [S, ...]: what the networks keep besides parameters (running statistics)."""
    couples_samples: bool
    """Whether a sample's logits depend on the rest of its batch in training (batch statistics)."""

    @abstractmethod
    def __call__(self, inputs: Tensor) -> Tensor:
        """Logits in training: [S, B, *shape] -> [S, B, K]."""

    @abstractmethod
    def predict(self, inputs: Tensor) -> Tensor:
        """Logits in evaluation, without a graph, of inputs that all trials share.

        [B, *shape] -> [S, B, K].
        """

    @abstractmethod
    def descend(self, loss: Tensor, lr: Tensor) -> None:
        """One step of gradient descent on the trials' losses [S], with learning rates [S]."""

    @abstractmethod
    def at(self, *moment: int) -> None:
        """Be told the time, which names what a net draws: there is no random state to save."""

    def state(self) -> dict[str, Tensor]:
        """The tensors to save and restore; they are the live ones, not copies."""
        return {**self.parameters, **self.buffers}


def stacked_state(
    nets: Sequence[nn.Module], device: torch.device | str
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The nets' parameters and buffers, each name -> [S, ...], as copies of the stack's own."""
    parameters, buffers = stack_module_state(list(nets))
    return (
        {
            name: value.detach().to(device).requires_grad_(value.requires_grad)
            for name, value in parameters.items()
        },
        {name: value.detach().to(device) for name, value in buffers.items()},
    )
