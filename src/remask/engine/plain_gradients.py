"""Gradients of single samples of any module, written out in full."""

import torch
from torch import Tensor

from remask.nets import Gradients, SampleGradients


class PlainGradients:
    """Gradients of single samples, as they are: name -> [S, n, ...]."""

    def __init__(self, gradients: Gradients) -> None:
        self._gradients = gradients

    def inner(self, other: SampleGradients) -> Tensor:
        """All inner products: [S, n, m]."""
        if not isinstance(other, PlainGradients):
            raise TypeError("gradients of one kind of stack have products with their own kind only")
        products = [
            torch.bmm(own.flatten(2), other._gradients[name].flatten(2).transpose(1, 2))
            for name, own in self._gradients.items()
        ]
        return torch.stack(products).sum(0)

    def squares(self, weights: Tensor) -> Gradients:
        """The sums over samples of weight times squared gradient."""
        return {
            name: torch.einsum("sn...,sn->s...", own.square(), weights)
            for name, own in self._gradients.items()
        }
