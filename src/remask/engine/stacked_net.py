"""What a stack of networks can do, whichever way it does it."""

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import stack_module_state
from typing_extensions import override

from remask.methods import Gradients, Net, State


class StackedNet(Net):
    """S networks that are evaluated and updated together."""

    buffers: dict[str, Tensor]
    """Name -> [S, ...]: what the networks keep besides parameters (running statistics)."""
    couples_samples: bool
    """Whether a sample's logits depend on the rest of its batch in training (batch statistics)."""

    @abstractmethod
    def at(self, *moment: int) -> None:
        """Be told the time, which names what a net draws: there is no random state to save."""

    @override
    @torch.no_grad()
    def move(self, gradients: Gradients, lr: Tensor) -> None:
        for name, gradient in gradients.items():
            parameter = self.parameters[name]
            rates = lr.view(-1, *[1] * (parameter.ndim - 1))
            parameter.addcmul_(gradient, rates, value=-1)

    @override
    def state(self) -> State:
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
