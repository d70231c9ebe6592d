"""Networks: ordinary nn.Modules, written for one model. The engine stacks them."""

import functools
import re
from collections.abc import Callable
from typing import Protocol

import torch
from torch import nn

from remask.errors import UnknownNameError, unknown
from remask.nets.conv import SmallConv, conv
from remask.nets.gradients import (
    FormedGradients,
    Gradients,
    LossGradients,
    SampleGradients,
    inner,
    per_trial,
    trial_sums,
)
from remask.nets.mlp import mlp
from remask.nets.nearest_mean import NearestMean
from remask.nets.resnet import ResNet18, resnet18
from remask.nets.stacked import StackedNet, State, stacked_state
from remask.own_code import OwnCodeError, failure_of, import_own, names_own_code

NetBuilder = Callable[[tuple[int, ...], int], nn.Module]
"""(input shape, number of classes) -> a classifier that maps `[B, *shape]` to logits `[B, K]`."""


class WideNetBuilder(Protocol):
    """A NetBuilder that can be told how wide to build."""

    def __call__(self, input_shape: tuple[int, ...], num_classes: int, width: int) -> nn.Module:
        """Build the net."""


NETS: dict[str, NetBuilder] = {"mlp": mlp, "conv": conv, "resnet18": resnet18}

_WITH_WIDTH: dict[str, WideNetBuilder] = {"conv": conv, "resnet18": resnet18}
_WIDTH = re.compile(r"[1-9][0-9]{0,3}")  # one spelling a width, since names identify trials


def net_builder(name: str) -> NetBuilder:
    """The builder of a named net; `resnet18:20` is of width 20, `module:function` the user's."""
    kind, colon, width = name.partition(":")
    if kind not in NETS:
        if names_own_code(name):
            return functools.partial(_own_net, name)
        raise UnknownNameError(
            unknown("net", kind, NETS) + "; or say module:function for one of your own"
        )
    if not colon:
        return NETS[kind]
    if kind not in _WITH_WIDTH:
        raise UnknownNameError(f"the net {kind!r} takes no width; say {kind!r}, not {name!r}")
    if not _WIDTH.fullmatch(width):
        raise UnknownNameError(
            f"the width in {name!r} must be a number from 1 to 9999, as in '{kind}:20'"
        )
    return functools.partial(_WITH_WIDTH[kind], width=int(width))


def _own_net(name: str, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Build a net of the user's own; what is wrong with it is better said now than in a step."""
    build = import_own("net", name)
    try:
        net = build(input_shape, num_classes)
    except Exception as error:
        raise failure_of(f"{name}({input_shape}, {num_classes})", error) from error
    if not isinstance(net, nn.Module):
        raise OwnCodeError(
            f"{name}({input_shape}, {num_classes}) must return an nn.Module, not {net!r:.100}"
        )
    try:
        with torch.no_grad():
            logits = net.eval()(torch.zeros(2, *input_shape))
    except Exception as error:
        raise failure_of(f"the net {name!r}, on inputs {[2, *input_shape]},", error) from error
    if not isinstance(logits, torch.Tensor) or logits.shape != (2, num_classes):
        shape = list(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
        raise OwnCodeError(
            f"the net {name!r} must turn inputs {[2, *input_shape]} into logits "
            f"{[2, num_classes]}, but gives {shape}"
        )
    if not any(parameter.requires_grad for parameter in net.parameters()):
        raise OwnCodeError(f"the net {name!r} has no parameters to train")
    return net.train()


__all__ = [
    "NETS",
    "FormedGradients",
    "Gradients",
    "LossGradients",
    "NearestMean",
    "NetBuilder",
    "ResNet18",
    "SampleGradients",
    "SmallConv",
    "StackedNet",
    "State",
    "conv",
    "inner",
    "mlp",
    "net_builder",
    "per_trial",
    "resnet18",
    "stacked_state",
    "trial_sums",
]
