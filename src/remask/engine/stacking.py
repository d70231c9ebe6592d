"""Stacking: S networks of one architecture, trained as one.

Every parameter has a leading axis S. No reduction crosses trials, so they cannot affect each other.
"""

from collections.abc import Sequence

import torch
from torch import nn

from remask.data.samples import DataDescription
from remask.engine.linear_stack import LinearStack, linear_layers
from remask.engine.module_stack import ModuleStack, has_convolutions
from remask.nets.builders import NetBuilder
from remask.nets.stacked import StackedNet
from remask.randomness import torch_seed
from remask.setting_types import Precision


def initial_nets(build: NetBuilder, data: DataDescription, seeds: Sequence[int]) -> list[nn.Module]:
    """One net per trial, with initial weights that depend only on its seed."""
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
    """Stack networks of one architecture, in the fastest way that supports it.

    `seeds`, one per net, seed the random numbers that a net draws in training (dropout). Messages
    call the net `name`. With the precision "bf16", layers compute in bfloat16.
    """
    layers = linear_layers(nets[0])
    if layers is not None and precision == "float32":
        return LinearStack(nets, layers, device)
    seeds = range(len(nets)) if seeds is None else seeds
    return ModuleStack(nets, seeds, device, name, bfloat16=precision == "bf16")


def preferred_stack(net: nn.Module, device: torch.device | str = "cpu") -> int:
    """The recommended number of trials per stack.

    Small matrix products leave a machine idle unless they are stacked. A convolution fills a CPU by
    itself, and stacking would only use more memory.
    """
    return 1 if has_convolutions(net) and torch.device(device).type == "cpu" else 10
