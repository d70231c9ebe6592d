"""Gradients of losses: by the names of parameters, or known without being formed."""

from abc import ABC, abstractmethod
from collections.abc import MutableMapping
from typing import Protocol

import torch
from torch import Tensor
from typing_extensions import override

from remask.nets.trialwise import inner, per_trial

Gradients = MutableMapping[str, Tensor]
"""By the parameters' names, in their order, each [S, ...]."""
Factors = list[tuple[str, Tensor, Tensor]]
"""Gradients of linear layers that were never formed, in the order of the backward: (layer, gradient
of its outputs [S, B, out], its inputs [S, B, in])."""


class LossGradients(MutableMapping[str, Tensor], ABC):
    """The gradients of the trials' losses, by the parameters' names, each [S, ...].

    A stack may know them without having formed them, and forms them when they are looked at by
    name. What its methods do needs no name.
    """

    @abstractmethod
    def inner(self, other: "LossGradients") -> Tensor:
        """The inner products of each trial's gradients with others of the same stack: [S]."""

    @abstractmethod
    def add(self, other: "LossGradients", shares: Tensor | None = None) -> None:
        """Add others of the same stack, times a share per trial [S] if given."""


class FormedGradients(dict[str, Tensor], LossGradients):
    """Gradients that are there."""

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
            if shares is not None:
                rates = per_trial(shares, more)
                self[name] = (
                    torch.addcmul(self[name], more, rates) if name in self else more * rates
                )
            else:
                self[name] = self[name] + more if name in self else more.clone()


class SampleGradients(Protocol):
    """The gradients of the cross-entropy of n single samples, perhaps in factors."""

    def inner(self, other: "SampleGradients") -> Tensor:
        """All inner products with those of m other samples: [S, n, m]."""

    def squares(self, weights: Tensor) -> Gradients:
        """The sum over samples of weight [S, n] times squared gradient, for each parameter."""
