"""Networks by name, and the small ones: a multilayer perceptron and a convolutional net."""

import functools
import math
import re
from collections.abc import Callable
from itertools import pairwise
from threading import Lock
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from remask.data.tasks import DataDescription
from remask.errors import UnknownNameError, unknown
from remask.nets.resnet import image_shape, resnet18
from remask.own_code import OwnCodeError, failure_of, import_own, names_own_code
from remask.randomness import torch_seed


def mlp(
    input_shape: tuple[int, ...], num_classes: int, hidden: tuple[int, ...] = (100, 100)
) -> nn.Module:
    """Fully connected layers with ReLU between them; Xavier-uniform weights and zero biases."""
    widths = (math.prod(input_shape), *hidden, num_classes)
    layers: list[nn.Module] = [nn.Flatten()]
    for fan_in, fan_out in pairwise(widths):
        linear = nn.Linear(fan_in, fan_out)
        nn.init.xavier_uniform_(linear.weight)
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])  # no ReLU on the logits


_seeding = Lock()  # of the random state that all threads share
_STAGES = 4
_SMALLEST = 4  # pixels; smaller maps are not halved


class SmallConv(nn.Module):
    """Blocks of convolution, batch normalisation and ReLU; each halves the size and widens.

    The head sees the mean of the last maps.
    """

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int, width: int) -> None:
        super().__init__()
        channels, side = input_shape[0], min(input_shape[1:])
        blocks: list[nn.Module] = []
        for stage in range(_STAGES):
            out = width * 2**stage
            stride = 2 if side >= 2 * _SMALLEST else 1
            # The first layer sees the most pixels: with 5 x 5 it can skip every other one.
            kernel = 5 if stage == 0 else 3
            blocks += [
                nn.Conv2d(channels, out, kernel, stride, padding=kernel // 2, bias=False),
                nn.BatchNorm2d(out),
                nn.ReLU(inplace=True),
            ]
            channels, side = out, -(-side // stride)
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(channels, num_classes)

    def features(self, inputs: Tensor) -> Tensor:
        """Return the means of the last maps: [B, C, H, W] -> [B, 8 * width]."""
        return F.adaptive_avg_pool2d(self.blocks(inputs), 1).flatten(1)

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute logits: [B, C, H, W] -> [B, K]."""
        logits: Tensor = self.head(self.features(inputs))
        return logits


def conv(input_shape: tuple[int, ...], num_classes: int, width: int = 16) -> nn.Module:
    """Build a small convolutional net for images of shape (channels, height, width)."""
    return SmallConv(image_shape("conv", input_shape), num_classes, width)


NetBuilder = Callable[[tuple[int, ...], int], nn.Module]
"""(input shape, number of classes) -> a classifier that maps `[B, *shape]` to logits `[B, K]`."""


_BUILDERS: dict[str, Callable[..., nn.Module]] = {
    "mlp": mlp,
    "conv": conv,
    "resnet18": resnet18,
    "resnet18-cosine": functools.partial(resnet18, cosine=True),
}
_WIDTH = re.compile(r"[1-9][0-9]{0,3}")  # one spelling per width, since names identify trials
NETS: dict[str, NetBuilder] = {**_BUILDERS}


def net_builder(name: str) -> NetBuilder:
    """Return the builder of a net: `resnet18:20` has width 20, `module:function` is your own."""
    kind, colon, width = name.partition(":")
    if kind not in NETS:
        if names_own_code(name):
            return functools.partial(_own_net, name)
        raise UnknownNameError(unknown("net", kind, NETS) + "; or module:function for your own")
    if not colon:
        return NETS[kind]
    if not _WIDTH.fullmatch(width):
        raise UnknownNameError(
            f"the width in {name!r} must be a number from 1 to 9999, as in '{kind}:20'"
        )
    size = int(width)
    options: dict[str, Any] = {"hidden": (size, size)} if kind == "mlp" else {"width": size}
    return functools.partial(_BUILDERS[kind], **options)


def _own_net(name: str, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Build a net of the user's own, and check it before training starts."""
    build, call = import_own("net", name), f"{name}({input_shape}, {num_classes})"
    try:
        net = build(input_shape, num_classes)
    except Exception as error:
        raise failure_of(call, error) from error
    if not isinstance(net, nn.Module):
        raise OwnCodeError(f"{call} must return an nn.Module, not {net!r:.100}")
    try:
        with torch.no_grad():
            logits = net.eval()(torch.zeros(2, *input_shape))
    except Exception as error:
        raise failure_of(f"the net {name!r}, on inputs {[2, *input_shape]},", error) from error
    shape = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
    if shape != [2, num_classes]:
        raise OwnCodeError(
            f"the net {name!r} must map inputs {[2, *input_shape]} to logits {[2, num_classes]}, "
            f"got {shape}"
        )
    if not any(parameter.requires_grad for parameter in net.parameters()):
        raise OwnCodeError(f"the net {name!r} has no parameters to train")
    return net.train()


def initial_net(build: NetBuilder, data: DataDescription, seed: int) -> nn.Module:
    """A net with initial weights that depend only on the seed."""
    with _seeding, torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(seed, "init"))
        return build(data.input_shape, data.num_classes)


def preferred_stack(net: nn.Module, device: torch.device | str = "cpu") -> int:
    """The recommended number of trials per stack.

    Small matrix products leave a machine idle unless they are stacked. A convolution fills a CPU by
    itself, and stacking would only use more memory.
    """
    return 1 if has_convolutions(net) and torch.device(device).type == "cpu" else 10


def has_convolutions(net: nn.Module) -> bool:
    """Whether the net has 2D convolutions."""
    return any(isinstance(module, nn.Conv2d) for module in net.modules())
