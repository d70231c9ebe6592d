"""What a stacked step cannot do without: its matrix products, into memory that is already there."""

import itertools
from collections.abc import Iterator, Sequence

import torch


def matmul_steps(trials: int, batch: int, widths: Sequence[int]) -> Iterator[None]:
    """The matrix products of one stacked step, without end."""
    torch.manual_seed(0)
    layers = list(itertools.pairwise(widths))
    inputs = [torch.randn(trials, batch, width) for width in widths[:-1]]
    gradients = [torch.randn(trials, batch, width) for width in widths[1:]]
    weights = [torch.randn(trials, wide, narrow) for narrow, wide in layers]
    outputs = [torch.empty_like(gradient) for gradient in gradients]
    weight_gradients = [torch.empty_like(weight) for weight in weights]
    input_gradients = [torch.empty_like(layer_inputs) for layer_inputs in inputs]
    while True:
        for x, w, out in zip(inputs, weights, outputs, strict=True):
            torch.bmm(x, w.transpose(1, 2), out=out)
        for layer in reversed(range(len(layers))):
            g = gradients[layer]
            torch.bmm(g.transpose(1, 2), inputs[layer], out=weight_gradients[layer])
            if layer:  # the images need no gradient
                torch.bmm(g, weights[layer], out=input_gradients[layer])
        yield
