"""Slow copies of the networks: moving averages of their weights, which can teach and predict."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from remask.nets.stacked import StackedNet, State, per_trial


def slow_copy(net: StackedNet) -> State:
    """A copy of the networks as they are now."""
    return {name: tensor.detach().clone() for name, tensor in net.state().items()}


@torch.no_grad()
def follow(slow: State, net: StackedNet, share: Tensor) -> None:
    """Move a copy towards the networks: slow <- (1 - share) * slow + share * net, share [S].

    The copy's statistics are its own, those of the batches that it has taught.
    """
    for name, tensor in net.state().items():
        if name in net.statistics:
            continue
        if tensor.is_floating_point():
            slow[name].add_((tensor - slow[name]).mul_(per_trial(share, tensor)))
        else:
            slow[name].copy_(tensor)


def share_of(steps: Tensor, slowness: Tensor, ramp: Tensor | float = 0.0) -> Tensor:
    """1 - a with a = min(1 - (1 + ramp) / (steps + 1 + ramp), slowness), [S].

    Until `slowness` limits it, the copy averages over about the latest 1 / (1 + ramp) of all steps
    so far; with ramp = 0 over all of them, each with the same weight. Either way it forgets its
    random beginning.
    """
    return torch.maximum((1 + ramp) / (steps + 1 + ramp), 1 - slowness)


@torch.no_grad()
def put_into(net: nn.Module, own: Mapping[str, Tensor], copy: str) -> nn.Module:
    """Give a net the weights of one trial's slow copy, by the name under which it is saved."""
    places = {**dict(net.named_parameters()), **dict(net.named_buffers())}
    for name, place in places.items():
        place.copy_(own[f"{copy}/{name}"])
    return net
