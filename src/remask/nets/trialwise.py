"""Arithmetic that keeps trials apart."""

from collections.abc import Mapping
from functools import reduce

import torch
from torch import Tensor


def per_trial(values: Tensor, like: Tensor) -> Tensor:
    """One number per trial, [S], in the shape that multiplies a tensor [S, ...]."""
    return values.view(-1, *[1] * (like.ndim - 1))


def inner(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> Tensor:
    """The inner products of each trial's gradients: [S]."""
    # As in `trial_sums`; and one trial's products fit in the cache.
    products = [
        torch.stack([(a * b).sum() for a, b in zip(own, other[name], strict=True)])
        for name, own in one.items()
    ]
    return reduce(torch.add, products)


def trial_sums(values: Tensor) -> Tensor:
    """The sum of each trial's numbers: [S, ...] -> [S].

    Trial by trial, since the last bits of a sum over an axis depend on the axes beside it, and a
    trial must have the same result in any stack.
    """
    return torch.stack([own.sum() for own in values.flatten(1)])
