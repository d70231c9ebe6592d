"""Networks: ordinary nn.Modules, written for one model. The engine stacks them."""

import functools
import re
from collections.abc import Callable
from typing import Protocol

from torch import nn

from remask.names import UnknownNameError, unknown
from remask.nets.mlp import mlp
from remask.nets.resnet import ResNet18, resnet18

NetBuilder = Callable[[tuple[int, ...], int], nn.Module]
"""(input shape, number of classes) -> a classifier that maps `[B, *shape]` to logits `[B, K]`."""


class WideNetBuilder(Protocol):
    """A NetBuilder that can be told how wide to build."""

    def __call__(self, input_shape: tuple[int, ...], num_classes: int, width: int) -> nn.Module:
        """Build the net."""


NETS: dict[str, NetBuilder] = {"mlp": mlp, "resnet18": resnet18}

_WITH_WIDTH: dict[str, WideNetBuilder] = {"resnet18": resnet18}
_WIDTH = re.compile(r"[1-9][0-9]{0,3}")  # one spelling a width, since names identify trials


def net_builder(name: str) -> NetBuilder:
    """The builder of a named net. `resnet18:20` is `resnet18` of width 20."""
    kind, colon, width = name.partition(":")
    if kind not in NETS:
        raise UnknownNameError(unknown("net", kind, NETS))
    if not colon:
        return NETS[kind]
    if kind not in _WITH_WIDTH:
        raise UnknownNameError(f"the net {kind!r} takes no width; say {kind!r}, not {name!r}")
    if not _WIDTH.fullmatch(width):
        raise UnknownNameError(
            f"the width in {name!r} must be a number from 1 to 9999, as in '{kind}:20'"
        )
    return functools.partial(_WITH_WIDTH[kind], width=int(width))


__all__ = ["NETS", "NetBuilder", "ResNet18", "mlp", "net_builder", "resnet18"]
