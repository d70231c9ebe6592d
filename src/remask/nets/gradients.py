"""Gradients of stacked losses, and arithmetic that keeps trials apart."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, MutableMapping
from functools import reduce

import torch
from torch import Tensor
from typing_extensions import override

Gradients = MutableMapping[str, Tensor]
"""By the parameters' names, in their order, each [S, ...]."""


class LossGradients(MutableMapping[str, Tensor], ABC):
    """The gradients of the trials' losses, by the parameters' names, each [S, ...].

    A stack may compute them only when they are looked up by name. These methods need no name.
    """

    @abstractmethod
    def inner(self, other: "LossGradients") -> Tensor:
        """The inner product of each trial's gradients with those of another loss: [S]."""

    @abstractmethod
    def add(self, other: "LossGradients", shares: Tensor | None = None) -> None:
        """Add those of another loss, times one share per trial [S] if given."""


class FormedGradients(dict[str, Tensor], LossGradients):
    """Ordinary gradients."""

    @override
    def inner(self, other: LossGradients) -> Tensor:
        shared = {name: own for name, own in self.items() if name in other}
        if not shared:  # losses that depend on different parameters
            some = next(iter(self.values()))
            return some.new_zeros(len(some))
        return inner(shared, other)

    @override
    def add(self, other: LossGradients, shares: Tensor | None = None) -> None:
        for name, more in other.items():
            scaled = more if shares is None else more * per_trial(shares, more)
            self[name] = self[name] + scaled if name in self else scaled.clone()


class SampleGradients(ABC):
    """The gradients of the cross-entropies of n single samples."""

    @abstractmethod
    def inner(self, other: "SampleGradients") -> Tensor:
        """All inner products with those of m samples of the same stack: [S, n, m]."""

    @abstractmethod
    def squares(self, weights: Tensor) -> Gradients:
        """The sums over samples of weight [S, n] times squared gradient, per parameter."""


def per_trial(values: Tensor, like: Tensor) -> Tensor:
    """One number per trial, [S], in the shape that multiplies a tensor [S, ...]."""
    return values.view(-1, *[1] * (like.ndim - 1))


def inner(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> Tensor:
    """The inner products of each trial's gradients: [S]."""
    # Trial by trial, as in `trial_sums`, and because one trial's products fit in the cache.
    products = [
        torch.stack([(a * b).sum() for a, b in zip(own, other[name], strict=True)])
        for name, own in one.items()
    ]
    return reduce(torch.add, products)


def trial_sums(values: Tensor) -> Tensor:
    """The sum of each trial's numbers: [S, ...] -> [S].

    Trial by trial: the last bits of a sum over an axis depend on the other axes, and a trial must
    have the same result in any stack.
    """
    return torch.stack([own.sum() for own in values.flatten(1)])
