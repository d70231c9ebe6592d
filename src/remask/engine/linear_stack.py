"""Stacks of multilayer perceptrons, as batched matmuls.

The backward of a step never writes the weight gradient of a forward to memory: it keeps the two
factors of it, and the descent adds their product to the weights in one batched matmul. For small
nets that is most of the time saved. What a loss computes from the parameters in any other way (a
penalty, a forward with parameters of its own) reaches them as ordinary gradients, and is added.
"""

import copy
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor, nn
from typing_extensions import override

from remask.engine.linear_chain import (
    Chain,
    Layers,
    Tape,
    out_of_place,
    parameters_of,
    products,
    run_back,
    run_chain,
)
from remask.engine.products import add_product_, product
from remask.losses import cross_entropy_and_slope
from remask.nets import Factors, Gradients, SampleGradients, StackedNet, State, Trace, stacked_state


class LinearStack(StackedNet):
    """A stack of multilayer perceptrons."""

    couples_samples = False
    traces = True
    samples_at_once = 512  # in factors

    def __init__(
        self,
        nets: Sequence[nn.Module],
        layers: list[tuple[str, nn.Module]],
        device: torch.device | str,
    ) -> None:
        self.parameters, self.buffers = stacked_state(nets, device)
        self.module = copy.deepcopy(nets[0])
        self._layers = [(name, out_of_place(layer)) for name, layer in layers]
        self._head = max(
            (place for place, (_, layer) in enumerate(layers) if isinstance(layer, nn.Linear)),
            default=-1,
        )
        self._tape = Tape()

    @override
    def __call__(self, inputs: Tensor, parameters: Mapping[str, Tensor] | None = None) -> Tensor:
        if parameters is not None:
            return run_chain(
                self._layers, inputs.flatten(2), parameters_of(self._layers, parameters)
            )[1]
        return self._forward(self._layers, inputs.flatten(2))

    @override
    @torch.no_grad()
    def predict(self, inputs: Tensor) -> Tensor:
        return self._forward(self._layers, inputs.flatten(1).expand(self._trials, -1, -1))

    @override
    @torch.no_grad()
    def evaluate(self, inputs: Tensor, state: State | None = None) -> Tensor:
        own = self.parameters if state is None else state
        return run_chain(self._layers, inputs.flatten(2), parameters_of(self._layers, own))[1]

    @override
    def features(self, inputs: Tensor, *, training: bool) -> Tensor:
        with torch.set_grad_enabled(training and torch.is_grad_enabled()):
            return self._forward(self._layers[: self._head], inputs.flatten(2))

    @override
    def head(self, features: Tensor) -> Tensor:
        return self._forward(self._layers[self._head :], features)

    def _forward(self, layers: Layers, inputs: Tensor) -> Tensor:
        parameters = parameters_of(layers, self.parameters)
        if not (parameters and torch.is_grad_enabled()):
            return run_chain(layers, inputs, parameters)[1]
        outputs: Tensor = Chain.apply(layers, self._tape, inputs, *parameters)  # type: ignore[no-untyped-call]
        return outputs

    @override
    def name_draws(self, *key: int) -> None:
        """Its layers draw nothing."""

    @override
    def gradients(self, loss: Tensor) -> Gradients:
        factors, gradients = self._backward(loss)
        return self._gradients(factors, gradients)

    @override
    def descend(self, loss: Tensor, lr: Tensor) -> None:
        factors, gradients = self._backward(loss)
        self.descend_factors(factors, lr)
        self.move(gradients, lr)

    @override
    def trace(self, inputs: Tensor) -> Trace:
        return Trace(
            *run_chain(
                self._layers, inputs.flatten(2), parameters_of(self._layers, self.parameters)
            )
        )

    @override
    def factors(self, trace: Trace, slope: Tensor) -> Factors:
        weights = parameters_of(self._layers, self.parameters)[0::2]
        return run_back(self._layers, trace.hidden, weights, slope)[0]

    @override
    def factor_gradients(self, factors: Factors) -> Gradients:
        return self._gradients(factors, {})

    @override
    @torch.no_grad()
    def descend_factors(self, factors: Factors, lr: Tensor) -> None:
        step = -lr.view(-1, 1, 1)
        for name, gradient, inputs in factors:
            scaled = gradient * step
            add_product_(self.parameters[f"{name}.weight"], scaled.mT, inputs)
            self.parameters[f"{name}.bias"].add_(scaled.sum(1))

    def _gradients(self, factors: Factors, others: Gradients) -> Gradients:
        """All gradients in the order of the parameters, from factors and what is beside them."""
        gradients = dict(others)
        for name, gradient, inputs in factors:
            names = (f"{name}.weight", f"{name}.bias")
            for key, value in zip(names, products(gradient, inputs), strict=True):
                # A layer is met again by every forward in the loss.
                gradients[key] = gradients[key] + value if key in gradients else value
        return {name: gradients[name] for name in self.parameters if name in gradients}

    @override
    @torch.no_grad()
    def batch_gradients(
        self, inputs: Tensor, labels: Tensor, sizes: Sequence[int]
    ) -> list[Gradients]:
        trace = self.trace(inputs)
        batches = [slice(*ends) for ends in pairwise(accumulate(sizes, initial=0))]
        slopes = [
            cross_entropy_and_slope(trace.logits[:, own], labels[:, own], None, None, 1.0)[1]
            for own in batches
        ]
        factors = self.factors(trace, torch.cat(slopes, dim=1))
        return [
            self._gradients(
                [(n, gradient[:, own], seen[:, own]) for n, gradient, seen in factors], {}
            )
            for own in batches
        ]

    @override
    @torch.no_grad()
    def sample_gradients(self, inputs: Tensor, labels: Tensor) -> "FactoredGradients":
        trace = self.trace(inputs)
        # As if all samples had one sum for a loss: they do not meet in it.
        _, slope = cross_entropy_and_slope(trace.logits, labels, None, None, float(labels.shape[1]))
        return FactoredGradients(self.factors(trace, slope))

    def _backward(self, loss: Tensor) -> tuple[Factors, Gradients]:
        """The gradients of the losses: those of forwards in factors, and what is beside them."""
        with self._tape.recording() as factors:
            # One backward through all trials: the gradient of each loss by itself is 1.
            others: tuple[Tensor | None, ...] = torch.autograd.grad(
                loss, list(self.parameters.values()), torch.ones_like(loss), allow_unused=True
            )
        named = zip(self.parameters, others, strict=True)
        return factors, {name: other for name, other in named if other is not None}

    @property
    def _trials(self) -> int:
        return len(next(iter(self.parameters.values())))


class FactoredGradients:
    """Gradients of single samples: of each layer, the gradient of its outputs and its inputs.

    The gradient of a sample's weights is the outer product of the two, and is never formed.
    """

    def __init__(self, factors: Factors) -> None:
        self._factors = sorted(factors, key=lambda entry: entry[0])

    def inner(self, other: SampleGradients) -> Tensor:
        """All inner products: of outer products it is the product of two inner products."""
        if not isinstance(other, FactoredGradients):
            raise TypeError("gradients of one kind of stack have products with their own kind only")
        total: Tensor | None = None
        for (_, gradient, inputs), (_, others, their) in zip(
            self._factors, other._factors, strict=True
        ):
            outputs = product(gradient, others.mT)
            part = outputs * (product(inputs, their.mT) + 1)  # + 1 for the bias
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
