"""Arithmetic that keeps trials apart."""

import torch
from torch import Tensor


def per_trial(values: Tensor, like: Tensor) -> Tensor:
    """One number per trial, [S], in the shape that multiplies a tensor [S, ...]."""
    return values.view(-1, *[1] * (like.ndim - 1))


def less(values: Tensor, change: Tensor) -> Tensor:
    """`values` - `change`, in the place of `change`: memory that is in the cache already."""
    return torch.sub(values, change, out=change)


def inner(one: Tensor, other: Tensor) -> Tensor:
    """The inner products of each trial's vectors: [S, P], [S, P] -> [S].

    Trial by trial, since the last bits of a sum over an axis depend on the axes beside it, and a
    trial must have the same result in any stack.
    """
    return torch.stack([torch.dot(a, b) for a, b in zip(one, other, strict=True)])
