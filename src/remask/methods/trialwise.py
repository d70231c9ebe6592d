"""Arithmetic that keeps trials apart."""

from functools import reduce

import torch
from torch import Tensor

from remask.nets import Gradients


def per_trial(values: Tensor, like: Tensor) -> Tensor:
    """One number per trial, [S], in the shape that multiplies a tensor [S, ...]."""
    return values.view(-1, *[1] * (like.ndim - 1))


def inner(one: Gradients, other: Gradients) -> Tensor:
    """The inner products of each trial's gradients: [S]."""
    return reduce(torch.add, [trial_sums(one[name] * other[name]) for name in one])


def trial_sums(values: Tensor) -> Tensor:
    """The sum of each trial's numbers: [S, ...] -> [S].

    Trial by trial, since the last bits of a sum over an axis depend on the axes beside it, and a
    trial must have the same result in any stack.
    """
    return torch.stack([own.sum() for own in values.flatten(1)])
