"""Networks: ordinary nn.Modules, written for one model. The engine stacks them."""

from collections.abc import Callable

from torch import nn

from remask.names import UnknownNameError, unknown
from remask.nets.mlp import mlp

NetBuilder = Callable[[tuple[int, ...], int], nn.Module]
"""(input shape, number of classes) -> a classifier that maps `[B, *shape]` to logits `[B, K]`."""

NETS: dict[str, NetBuilder] = {"mlp": mlp}


def net_builder(name: str) -> NetBuilder:
    """The builder of a named net."""
    if name not in NETS:
        raise UnknownNameError(unknown("net", name, NETS))
    return NETS[name]


__all__ = ["NETS", "NetBuilder", "mlp", "net_builder"]
