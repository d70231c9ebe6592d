"""The multilayer perceptron of the MNIST-like benchmarks."""

import math
from itertools import pairwise

from torch import nn


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
