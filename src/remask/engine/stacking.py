"""Stacking: S networks of one architecture, trained as one.

Every parameter carries a leading axis S. Parameters of different trials never meet in a reduction,
so trials cannot disturb each other.
"""

from collections.abc import Sequence

import torch
from torch import nn

from remask.engine.channels_last import convolves
from remask.engine.linear_chain import linear_chain
from remask.engine.linear_stack import LinearStack
from remask.engine.module_stack import ModuleStack
from remask.nets import NetBuilder, StackedNet
from remask.randomness import torch_seed
from remask.setting_types import Precision
from remask.streams import DataDescription


def initial_nets(build: NetBuilder, data: DataDescription, seeds: Sequence[int]) -> list[nn.Module]:
    """A net per trial, whose initial weights depend on its seed alone."""
    nets = []
    for seed in seeds:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(torch_seed(seed, "init"))
            nets.append(build(data.input_shape, data.num_classes))
    return nets


def stack_nets(
    nets: Sequence[nn.Module],
    device: torch.device | str = "cpu",
    *,
    seeds: Sequence[int] | None = None,
    name: str | None = None,
    precision: Precision = "float32",
) -> StackedNet:
    """Stack networks of one architecture, in the fastest way that fits it.

    `seeds`, one per net, name the random numbers that a net may draw in training (dropout).
    `name` is what messages call the net. With the precision "bf16" layers compute in bfloat16.
    """
    chain = linear_chain(nets[0])
    if chain is not None and precision == "float32":
        return LinearStack(nets, chain, device)
    seeds = range(len(nets)) if seeds is None else seeds
    return ModuleStack(nets, seeds, device, name, bfloat16=precision == "bf16")


def preferred_stack(net: nn.Module, device: torch.device | str = "cpu") -> int:
    """How many trials of a net to stack.

    Small matrix products leave a machine idle, and stacked ones do not; a convolution fills a CPU
    by itself, and stacked ones only take more memory.
    """
    return 1 if convolves(net) and torch.device(device).type == "cpu" else 10
