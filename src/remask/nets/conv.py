"""A small convolutional net, which a processor without an accelerator trains in minutes."""

import torch.nn.functional as F
from torch import Tensor, nn

_STAGES = 4
_SMALLEST = 4  # pixels; smaller maps are not halved


class SmallConv(nn.Module):
    """Blocks of convolution, batch normalisation and ReLU; each halves the size and widens.

    The head sees the mean of the last maps.
    """

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int, width: int) -> None:
        super().__init__()
        channels, height, wide = input_shape
        side, blocks = min(height, wide), []
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
    if len(input_shape) != 3:
        raise ValueError(
            f"conv needs images of (channels, height, width); these inputs have shape {input_shape}"
        )
    channels, height, wide = input_shape
    return SmallConv((channels, height, wide), num_classes, width)
