"""Convolutions on a CPU: they are faster where the channels are last in memory."""

import torch
from torch import Tensor, nn


def convolves(net: nn.Module) -> bool:
    """Whether the net has convolutions."""
    return any(isinstance(module, nn.Conv2d) for module in net.modules())


def safe_with_channels_last(net: nn.Module) -> bool:
    """Whether oneDNN can train the net with channels last.

    It writes past its own memory where a 1x1 convolution with a stride has fewer input channels
    than one of its blocks, which are 8 or 16 (https://github.com/uxlfoundation/oneDNN/issues/6035).
    """
    return not any(
        set(module.kernel_size) == {1} and set(module.stride) != {1} and module.in_channels < 16
        for module in net.modules()
        if isinstance(module, nn.Conv2d)
    )


def with_channels_last(stacked: Tensor) -> Tensor:
    """Kernels [S, out, in, h, w] with the channels last in memory; other tensors as they are."""
    if stacked.ndim != 5:
        return stacked
    # Not contiguous() of a permuted tensor: it takes a 1x1 kernel to be in order already.
    memory = torch.empty_like(stacked.movedim(2, -1), memory_format=torch.contiguous_format)
    copied = memory.movedim(-1, 2).copy_(stacked.detach())
    return copied.requires_grad_(stacked.requires_grad)
