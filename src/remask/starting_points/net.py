"""A custom network: a function from (input shape, number of classes) to an nn.Module.

remask check er --net starting_point:starting_point
remask run --net starting_point:starting_point --method er --epochs 1
"""

import math

from torch import nn


def starting_point(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """A network from inputs [B, *input_shape] to logits [B, num_classes].

    Write it for one model; remask trains several side by side. The trial's seed determines the
    initial weights and the random numbers of training, such as dropout.
    """
    # Images are (channels, height, width), vectors (length,).
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(math.prod(input_shape), 100),
        nn.ReLU(),
        nn.Linear(100, num_classes),
    )
