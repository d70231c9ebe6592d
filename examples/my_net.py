"""A custom network: a function from (input shape, number of classes) to an nn.Module."""

from torch import nn


def small_conv(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """A convolution, dropout and a linear head; remask stacks it, and replays its dropout."""
    channels, height, width = input_shape
    return nn.Sequential(
        nn.Conv2d(channels, 8, 3, padding=1),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(8 * (height // 2) * (width // 2), num_classes),
    )
