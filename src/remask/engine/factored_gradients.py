"""Gradients of linear layers in factors.

The gradient of a weight is a sum over samples of outer products of the gradient of the layer's
outputs with its inputs. Most operations on gradients are faster on these two factors.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce

import torch
from torch import Tensor
from typing_extensions import override

from remask.nets.stacked import (
    FormedGradients,
    Gradients,
    LossGradients,
    SampleGradients,
    trial_sums,
)

Factors = list[tuple[str, Tensor, Tensor]]
"""Per linear layer: its name, the gradient of its outputs [S, B, out], its inputs [S, B, in]."""


def form(gradient: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of a linear layer's weight and bias, from their factors."""
    return torch.bmm(gradient.mT, inputs), gradient.sum(1)


class FactoredGradients(LossGradients):
    """The gradients of losses: factors, and ordinary gradients beside them.

    Access by name forms all of them and drops the factors, so a tensor may be changed in place.
    """

    def __init__(self, factors: Factors, others: Gradients, order: Iterable[str]) -> None:
        """`others` are ordinary gradients, `order` the names of all parameters."""
        self._factors, self._others, self._order = factors, FormedGradients(others), order

    @override
    def inner(self, other: LossGradients) -> Tensor:
        factors, others = _split(other)
        parts = [
            _inner_of_samples(own, theirs)
            for own in self._factors
            for theirs in factors
            if own[0] == theirs[0]
        ]
        parts += _inner_with_formed(self._factors, others)
        parts += _inner_with_formed(factors, self._others)
        sums = [self._others.inner(others)] if self._others and others else []
        if parts:
            sums.append(trial_sums(torch.cat([part.flatten(1) for part in parts], dim=1)))
        return reduce(torch.add, sums)

    @override
    def add(self, other: LossGradients, shares: Tensor | None = None) -> None:
        factors, others = _split(other)
        if shares is not None:
            factors = [(name, g * shares.view(-1, 1, 1), inputs) for name, g, inputs in factors]
        self._factors = self._factors + factors
        self._others.add(others, shares)

    def outputs(self, name: str, inputs: Tensor) -> list[Tensor]:
        """Summands of a layer's outputs for inputs [S, n, in], with the gradients as parameters."""
        found = [
            torch.bmm(torch.bmm(inputs, seen.mT) + 1, gradient)  # + 1 for the bias
            for layer, gradient, seen in self._factors
            if layer == name
        ]
        if (weight := self._others.get(f"{name}.weight")) is not None:
            found.append(torch.bmm(inputs, weight.mT))
        if (bias := self._others.get(f"{name}.bias")) is not None:
            found.append(bias.unsqueeze(1))
        return found

    @torch.no_grad()
    def move(self, parameters: Mapping[str, Tensor], lr: Tensor) -> Gradients:
        """Take a step along the factors with learning rates [S]; returns the other gradients."""
        step = -lr.view(-1, 1, 1)
        for name, gradient, inputs in self._factors:
            scaled = gradient * step
            parameters[f"{name}.weight"].baddbmm_(scaled.mT, inputs)
            parameters[f"{name}.bias"].add_(scaled.sum(1))
        return self._others

    def formed(self) -> FormedGradients:
        """All gradients by name; drops the factors."""
        if self._factors:
            found = self._others
            for name, *factors in self._factors:
                for kind, value in zip(("weight", "bias"), form(*factors), strict=True):
                    key = f"{name}.{kind}"
                    # A layer occurs once per forward pass in the loss.
                    found[key] = found[key] + value if key in found else value
            self._factors = []
            self._others = FormedGradients({n: found[n] for n in self._order if n in found})
        return self._others

    @override
    def __getitem__(self, name: str) -> Tensor:
        return self.formed()[name]

    @override
    def __setitem__(self, name: str, gradient: Tensor) -> None:
        self.formed()[name] = gradient

    @override
    def __delitem__(self, name: str) -> None:
        del self.formed()[name]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self.formed())

    @override
    def __len__(self) -> int:
        return len(self.formed())


class FactoredSamples(SampleGradients):
    """Gradients of single samples: outer products that are never formed."""

    def __init__(self, factors: Factors) -> None:
        self._factors = factors

    @override
    def inner(self, other: SampleGradients) -> Tensor:
        assert isinstance(other, FactoredSamples)  # of the same stack
        pairs = zip(self._factors, other._factors, strict=True)
        return reduce(torch.add, [_inner_of_samples(*pair) for pair in pairs])

    @override
    def squares(self, weights: Tensor) -> Gradients:
        sums = {}
        for name, gradient, inputs in self._factors:
            squared = gradient.square() * weights.unsqueeze(2)
            sums[f"{name}.weight"], sums[f"{name}.bias"] = form(squared, inputs.square())
        return sums


def _split(gradients: LossGradients) -> tuple[Factors, LossGradients]:
    """The factors, and the ordinary gradients."""
    if isinstance(gradients, FactoredGradients):
        return gradients._factors, gradients._others
    return [], gradients


def _inner_of_samples(one: tuple[str, Tensor, Tensor], other: tuple[str, Tensor, Tensor]) -> Tensor:
    """The inner products of the gradients of n and m samples in one layer: [S, n, m]."""
    (_, gradient, inputs), (_, others, their) = one, other
    return torch.bmm(gradient, others.mT) * (torch.bmm(inputs, their.mT) + 1)  # + 1 for the bias


def _inner_with_formed(factors: Factors, others: Gradients) -> list[Tensor]:
    """Tensors whose sum is the inner product of factors and ordinary gradients."""
    parts = []
    for name, gradient, inputs in factors:
        if (weight := others.get(f"{name}.weight")) is not None:
            parts.append(gradient * torch.bmm(inputs, weight.mT))
        if (bias := others.get(f"{name}.bias")) is not None:
            parts.append(gradient.sum(1) * bias)
    return parts
