"""ResNet-18 for small images (He et al. 2016, in the form that is common for CIFAR)."""

import torch.nn.functional as F
from torch import Tensor, nn

_STRIDES = (1, 2, 2, 2)
_BLOCKS_A_STAGE = 2


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut: [B, in, H, W] -> [B, out, H/stride, W/stride]."""

    def __init__(self, width_in: int, width_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width_in, width_out, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width_out)
        self.conv2 = nn.Conv2d(width_out, width_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width_out)
        self.shortcut = nn.Sequential()
        if stride != 1 or width_in != width_out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(width_in, width_out, 1, stride, bias=False), nn.BatchNorm2d(width_out)
            )

    def forward(self, inputs: Tensor) -> Tensor:
        """Add both branches, and apply ReLU."""
        hidden = F.relu(self.bn1(self.conv1(inputs)))
        return F.relu(self.bn2(self.conv2(hidden)) + self.shortcut(inputs))


class CosineHead(nn.Module):
    """Ten times the cosine of the features and each class's weights (ER-ACE's head)."""

    def __init__(self, width: int, num_classes: int) -> None:
        super().__init__()
        self.weight = nn.Linear(width, num_classes, bias=False).weight

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute logits in [-10, 10]: [B, F] -> [B, K]."""
        return 10 * F.linear(F.normalize(inputs, eps=1e-5), F.normalize(self.weight, eps=1e-5))


class ResNet18(nn.Module):
    """A stem and four stages of two blocks, `width` to 8 * `width` channels; a head.

    The stem keeps the size of the images: 3x3, stride 1, no pooling. Weights have torch's defaults.
    """

    def __init__(
        self, channels: int, num_classes: int, width: int = 64, *, cosine: bool = False
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(width)
        blocks: list[nn.Module] = []
        width_in = width
        for stage, stride in enumerate(_STRIDES):
            for number in range(_BLOCKS_A_STAGE):
                width_out = width * 2**stage
                blocks.append(BasicBlock(width_in, width_out, stride if number == 0 else 1))
                width_in = width_out
        self.blocks = nn.Sequential(*blocks)
        self.head: nn.Linear | CosineHead = (
            CosineHead(width_in, num_classes) if cosine else nn.Linear(width_in, num_classes)
        )

    def features(self, inputs: Tensor) -> Tensor:
        """Return the means of the last maps: [B, C, H, W] -> [B, 8 * width]."""
        maps: Tensor = self.blocks(F.relu(self.bn(self.conv(inputs))))
        return maps.mean((-2, -1))

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute logits: [B, C, H, W] -> [B, K]."""
        logits: Tensor = self.head(self.features(inputs))
        return logits


def resnet18(
    input_shape: tuple[int, ...], num_classes: int, width: int = 64, *, cosine: bool = False
) -> nn.Module:
    """Build a ResNet-18 for images of shape (channels, height, width)."""
    return ResNet18(image_shape("resnet18", input_shape)[0], num_classes, width, cosine=cosine)


def image_shape(net: str, shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return the shape if it is that of images. Raises ValueError."""
    if len(shape) != 3:
        raise ValueError(
            f"{net} needs images of (channels, height, width); these inputs have shape {shape}"
        )
    channels, height, width = shape
    return channels, height, width
