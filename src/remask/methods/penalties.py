"""Penalties on the parameters themselves.

A penalty touches every parameter in every step, so its time goes into passes over memory.
`squared_norm` is a term of a loss like any other, with its gradient written by hand. `add_pull` is
that gradient alone: as a term of the loss it makes a step of oEWC or SI a quarter slower.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from remask.nets.stacked import Gradients, per_trial


def squared_norm(parameters: Mapping[str, Tensor]) -> Tensor:
    """The sum of all parameters squared, per trial: [S]."""
    total: Tensor = _SquaredNorm.apply(*parameters.values())  # type: ignore[no-untyped-call]
    return total


def add_pull(
    gradients: Gradients,
    parameters: Mapping[str, Tensor],
    towards: Mapping[str, Tensor],
    importance: Mapping[str, Tensor],
    strength: Tensor,
) -> None:
    """Add the gradient of strength * sum importance * (parameter - towards)^2, strength [S]."""
    for name, gradient in gradients.items():
        pull = importance[name] * per_trial(2 * strength, gradient)
        gradient.addcmul_(pull, parameters[name].detach() - towards[name])


class _SquaredNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *parameters: Tensor) -> Tensor:
        ctx.save_for_backward(*parameters)
        flat = [parameter.flatten(1) for parameter in parameters]
        return torch.stack([torch.linalg.vecdot(own, own) for own in flat]).sum(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        (gradient,) = gradients
        return tuple(own * per_trial(2 * gradient, own) for own in ctx.saved_tensors)
