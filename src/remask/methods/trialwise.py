"""Arithmetic that keeps trials apart."""

from functools import reduce

import torch
from torch import Tensor

from remask.nets import Gradients


def per_trial(values: Tensor, like: Tensor) -> Tensor:
    """One number per trial, [S], in the shape that multiplies a tensor [S, ...]."""
    return values.view(-1, *[1] * (like.ndim - 1))


def less(values: Tensor, change: Tensor) -> Tensor:
    """`values` - `change`, in the place of `change`: memory that is in the cache already."""
    return torch.sub(values, change, out=change)


def inner(one: Gradients, other: Gradients) -> Tensor:
    """The inner products of each trial's gradients: [S].

    Trial by trial, since the last bits of a sum over an axis depend on the axes beside it, and a
    trial must have the same result in any stack; and since one trial's products fit in the cache.
    """
    return reduce(
        torch.add,
        [
            torch.stack([(a * b).sum() for a, b in zip(one[name], other[name], strict=True)])
            for name in one
        ],
    )
