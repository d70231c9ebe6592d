"""Gradients of a chain of linear layers, in factors.

The gradient of a weight is the sum over samples of outer products: of the gradient of the layer's
outputs with its inputs. Much that is done with gradients is done faster with these two.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce

import torch
from torch import Tensor
from typing_extensions import override

from remask.engine.linear_chain import products
from remask.engine.products import add_product_, product
from remask.nets import (
    Factors,
    FormedGradients,
    Gradients,
    LossGradients,
    SampleGradients,
)
from remask.nets.trialwise import trial_sums


class FactoredGradients(LossGradients):
    """The gradients of losses: those of forwards in factors, and what is beside them.

    To be looked at by name they are all formed, and the factors are forgotten: whoever changes a
    tensor changes the gradient.
    """

    def __init__(self, factors: Factors, others: Gradients, order: Iterable[str]) -> None:
        """Factors of layers, gradients of parameters, and the names of all parameters in order."""
        self._factors, self._others, self._order = factors, FormedGradients(others), order

    @override
    def inner(self, other: LossGradients) -> Tensor:
        factors, others = _parts(other)
        parts = [
            _products_of_samples(own, theirs)
            for own in self._factors
            for theirs in factors
            if own[0] == theirs[0]
        ]
        parts += _seen_by(self._factors, others) + _seen_by(factors, self._others)
        beside = [self._others.inner(others)] if self._others and others else []
        if parts:
            beside.append(trial_sums(torch.cat([part.flatten(1) for part in parts], dim=1)))
        return reduce(torch.add, beside)

    @override
    def add(self, other: LossGradients, shares: Tensor | None = None) -> None:
        factors, others = _parts(other)
        if shares is not None:
            factors = [(name, g * shares.view(-1, 1, 1), inputs) for name, g, inputs in factors]
        self._factors = self._factors + factors
        self._others.add(others, shares)

    def outputs(self, name: str, inputs: Tensor) -> list[Tensor]:
        """What a layer with the gradients for weight and bias makes of inputs [S, n, in]: a sum."""
        found = [
            product(product(inputs, seen.mT) + 1, gradient)  # + 1 for the bias
            for layer, gradient, seen in self._factors
            if layer == name
        ]
        if (weight := self._others.get(f"{name}.weight")) is not None:
            found.append(product(inputs, weight.mT))
        if (bias := self._others.get(f"{name}.bias")) is not None:
            found.append(bias.unsqueeze(1))
        return found

    @torch.no_grad()
    def move(self, parameters: Mapping[str, Tensor], lr: Tensor) -> Gradients:
        """Move parameters against what is in factors, with learning rates [S]; gives the rest."""
        step = -lr.view(-1, 1, 1)
        for name, gradient, inputs in self._factors:
            scaled = gradient * step
            add_product_(parameters[f"{name}.weight"], scaled.mT, inputs)
            parameters[f"{name}.bias"].add_(scaled.sum(1))
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

    def formed(self) -> FormedGradients:
        """All of them, by name; the factors are forgotten."""
        if self._factors:
            found = self._others
            for name, gradient, inputs in self._factors:
                names = (f"{name}.weight", f"{name}.bias")
                for key, value in zip(names, products(gradient, inputs), strict=True):
                    # A layer is met again by every forward in the loss.
                    found[key] = found[key] + value if key in found else value
            self._factors = []
            self._others = FormedGradients({n: found[n] for n in self._order if n in found})
        return self._others


class FactoredSamples:
    """Gradients of single samples: outer products that are never formed."""

    def __init__(self, factors: Factors) -> None:
        self._factors = sorted(factors, key=lambda entry: entry[0])

    def inner(self, other: SampleGradients) -> Tensor:
        """All inner products: of outer products it is the product of two inner products."""
        if not isinstance(other, FactoredSamples):
            raise TypeError("gradients of one kind of stack have products with their own kind only")
        total: Tensor | None = None
        for own, theirs in zip(self._factors, other._factors, strict=True):
            part = _products_of_samples(own, theirs)
            total = part if total is None else total + part
        assert total is not None  # a net has a layer
        return total

    def squares(self, weights: Tensor) -> Gradients:
        """The weighted sums: an outer product squared is the outer product of the squares."""
        sums = {}
        for name, gradient, inputs in self._factors:
            squared = gradient.square() * weights.unsqueeze(2)
            sums[f"{name}.weight"] = product(squared.mT, inputs.square())
            sums[f"{name}.bias"] = squared.sum(1)
        return sums


def _parts(gradients: LossGradients) -> tuple[Factors, LossGradients]:
    """What is in factors, and what is beside them."""
    if isinstance(gradients, FactoredGradients):
        return gradients._factors, gradients._others
    return [], gradients


def _products_of_samples(
    one: tuple[str, Tensor, Tensor], other: tuple[str, Tensor, Tensor]
) -> Tensor:
    """The inner products of the gradients of n samples and of m others, of one layer: [S, n, m]."""
    (_, gradient, inputs), (_, others, their) = one, other
    return product(gradient, others.mT) * (product(inputs, their.mT) + 1)  # + 1 for the bias


def _seen_by(factors: Factors, others: Gradients) -> list[Tensor]:
    """Tensors whose sum is the inner product of factors and what is formed."""
    parts = []
    for name, gradient, inputs in factors:
        if (weight := others.get(f"{name}.weight")) is not None:
            parts.append(gradient * product(inputs, weight.mT))
        if (bias := others.get(f"{name}.bias")) is not None:
            parts.append(gradient.sum(1) * bias)
    return parts
