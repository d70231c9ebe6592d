"""A classifier by the nearest mean of features, around a net."""

import torch
from torch import Tensor, nn


class NearestMean(nn.Module):
    """Scores a class by how near its mean features are; the highest score wins.

    The features are what the net's last linear layer sees. Classes not seen yet score -inf.
    """

    means: Tensor
    seen: Tensor

    def __init__(self, net: nn.Module, means: Tensor, seen: Tensor) -> None:
        """`means` is [K, F], `seen` bool [K]."""
        super().__init__()
        self.net = net
        self.register_buffer("means", means)
        self.register_buffer("seen", seen)

    def forward(self, inputs: Tensor) -> Tensor:
        """Scores: [B, *shape] -> [B, K]."""
        # torch.cdist would do, but cannot be exported for batches of any size.
        distances = (self._features(inputs).unsqueeze(1) - self.means).square().sum(-1)
        return (-distances).masked_fill(~self.seen, -torch.inf)

    def _features(self, inputs: Tensor) -> Tensor:
        caught: list[Tensor] = []
        hooks = [
            layer.register_forward_pre_hook(lambda _, given: caught.append(given[0]))
            for layer in self.net.modules()
            if isinstance(layer, nn.Linear)
        ]
        try:
            self.net(inputs)
        finally:
            for hook in hooks:
                hook.remove()
        return caught[-1]
