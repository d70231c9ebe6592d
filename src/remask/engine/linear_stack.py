"""Stacks of multilayer perceptrons as matrix products of each trial.

A backward pass does not form the gradient of a weight. It returns its two factors, and the update
adds their product to the weight. What a loss computes from the parameters in any other way, such as
a penalty, reaches them as ordinary gradients.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from typing_extensions import override

from remask.losses import cross_entropy_and_slope, mse_and_slope
from remask.nets.stacked import (
    FormedGradients,
    Gradients,
    LossGradients,
    SampleGradients,
    StackedNet,
    State,
    stacked_state,
    trial_products,
    trial_sums,
)

_FEW = 32  # samples: with more, inner products of factored gradients cost more than formed ones
Factors = list[tuple[str, Tensor, Tensor]]
"""Per linear layer: its name, the gradient of its outputs [S, B, out], its inputs [S, B, in]."""


class Trace(NamedTuple):
    """A forward pass with what its backward pass needs."""

    inputs: list[Tensor]
    """Those of each linear layer."""
    outputs: list[Tensor]

    @property
    def logits(self) -> Tensor:
        """The outputs of the last layer."""
        return self.outputs[-1]


def relu_chain(net: nn.Module) -> list[str] | None:
    """The names of the linear layers of a chain of Flatten, Linear, ReLU, Linear, ...; or None.

    Each layer has a bias, nothing is frozen or attached, and there is no ReLU after the last one.
    """
    if type(net) is not nn.Sequential or any(map(_has_hooks, net.modules())):
        return None
    # named_children() would skip the second place of a layer that occurs twice.
    layers: list[tuple[str, Any]] = list(net._modules.items())
    kinds = [type(layer) for _, layer in layers]
    if kinds != [nn.Flatten, nn.Linear, *[nn.ReLU, nn.Linear] * (len(kinds) // 2 - 1)]:
        return None
    linear = layers[1::2]
    parameters = [own for _, layer in linear for own in (layer.weight, layer.bias)]
    shared = len({id(own) for own in parameters}) < len(parameters)
    if layers[0][1].start_dim != 1 or shared:
        return None
    if not all(own is not None and own.requires_grad for own in parameters):
        return None
    return [name for name, _ in linear]


def _has_hooks(module: nn.Module) -> bool:
    """Whether something is attached that only the module's own forward would run."""
    hooks = module._forward_hooks or module._forward_pre_hooks
    return bool(hooks) or hasattr(module, "parametrizations")


def form(gradient: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of a linear layer's weight and bias, from their factors."""
    return trial_products(gradient.mT, inputs), gradient.sum(1)


class FactoredGradients(LossGradients):
    """The gradients of losses: factors, and ordinary gradients beside them.

    Access by name forms all of them and drops the factors, so a tensor may be changed in place.
    """

    def __init__(self, factors: Factors, order: Iterable[str]) -> None:
        """`order` has the names of all parameters."""
        self.factors, self._order = factors, order
        self.others = FormedGradients()

    @override
    def inner(self, other: LossGradients) -> Tensor:
        factors, others = _split(other)
        parts = [
            _inner_of_samples(own, theirs)
            for own in self.factors
            for theirs in factors
            if own[0] == theirs[0]
        ]
        parts += _inner_with_formed(self.factors, others)
        parts += _inner_with_formed(factors, self.others)
        sums = [self.others.inner(others)] if self.others and others else []
        if parts:
            sums.append(trial_sums(torch.cat([part.flatten(1) for part in parts], dim=1)))
        return reduce(torch.add, sums)

    @override
    def add(self, other: LossGradients, shares: Tensor | None = None) -> None:
        factors, others = _split(other)
        if shares is not None:
            factors = [(name, g * shares.view(-1, 1, 1), inputs) for name, g, inputs in factors]
        self.factors = self.factors + factors
        self.others.add(others, shares)

    @torch.no_grad()
    def move(self, parameters: Mapping[str, Tensor], lr: Tensor) -> Gradients:
        """Take a step along the factors with learning rates [S]; returns the other gradients."""
        step = -lr.view(-1, 1, 1)
        for name, gradient, inputs in self.factors:
            scaled = gradient * step
            parameters[f"{name}.weight"].add_(trial_products(scaled.mT, inputs))
            parameters[f"{name}.bias"].add_(scaled.sum(1))
        return self.others

    def formed(self) -> FormedGradients:
        """All gradients by name; drops the factors."""
        if self.factors:
            found = self.others
            for name, *factors in self.factors:
                for kind, value in zip(("weight", "bias"), form(*factors), strict=True):
                    key = f"{name}.{kind}"
                    # A layer occurs once per forward pass in the loss.
                    found[key] = found[key] + value if key in found else value
            self.factors = []
            self.others = FormedGradients({n: found[n] for n in self._order if n in found})
        return self.others

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
        return gradients.factors, gradients.others
    return [], gradients


def _inner_of_samples(one: tuple[str, Tensor, Tensor], other: tuple[str, Tensor, Tensor]) -> Tensor:
    """The inner products of the gradients of n and m samples in one layer: [S, n, m]."""
    (_, gradient, inputs), (_, others, their) = one, other
    return trial_products(gradient, others.mT) * (
        trial_products(inputs, their.mT) + 1
    )  # + 1 for the bias


def _inner_with_formed(factors: Factors, others: Gradients) -> list[Tensor]:
    """Tensors whose sum is the inner product of factors and ordinary gradients."""
    parts = []
    for name, gradient, inputs in factors:
        if (weight := others.get(f"{name}.weight")) is not None:
            parts.append(gradient * trial_products(inputs, weight.mT))
        if (bias := others.get(f"{name}.bias")) is not None:
            parts.append(gradient.sum(1) * bias)
    return parts


class LinearStack(StackedNet):
    """A stack of multilayer perceptrons whose linear layers `relu_chain` returned."""

    couples_samples = False
    samples_at_once = 512  # in factors
    compiled: Callable[[Tensor, State], Tensor | None] | None = None
    """A compiled forward pass with some states: [S, B, D] -> [S, B, K]."""

    def __init__(
        self, nets: Sequence[nn.Module], layers: Sequence[str], device: torch.device | str
    ) -> None:
        self.parameters, self.buffers = stacked_state(nets, device)
        self.module = copy.deepcopy(nets[0])
        self.layers = layers
        """The names of the linear layers."""

    @override
    def __call__(self, inputs: Tensor, parameters: Mapping[str, Tensor] | None = None) -> Tensor:
        return self._run(self.layers, inputs.flatten(2), parameters).logits

    @override
    @torch.no_grad()
    def predict(self, inputs: Tensor) -> Tensor:
        trials = len(next(iter(self.parameters.values())))
        return self.evaluate(inputs.expand(trials, *inputs.shape))

    @override
    @torch.no_grad()
    def evaluate(self, inputs: Tensor, state: State | None = None) -> Tensor:
        state = self.parameters if state is None else state
        logits = None if self.compiled is None else self.compiled(inputs.flatten(2), state)
        return self(inputs, state) if logits is None else logits

    @override
    def features(self, inputs: Tensor, *, training: bool) -> Tensor:
        with torch.set_grad_enabled(training and torch.is_grad_enabled()):
            hidden = inputs.flatten(2)
            return self._run(self.layers[:-1], hidden).logits.relu() if self.layers[1:] else hidden

    @override
    def head(self, features: Tensor) -> Tensor:
        return self._run(self.layers[-1:], features).logits

    def trace(self, inputs: Tensor) -> Trace:
        """Run a forward pass on [S, B, *shape], for `trace_gradients`."""
        return self._run(self.layers, inputs.flatten(2))

    def _run(
        self,
        layers: Sequence[str],
        inputs: Tensor,
        parameters: Mapping[str, Tensor] | None = None,
    ) -> Trace:
        own = self.parameters if parameters is None else parameters
        trace = Trace([], [])
        for name in layers:
            inputs = trace.outputs[-1].relu() if trace.outputs else inputs
            outputs = trial_products(inputs, own[f"{name}.weight"].mT)
            trace.inputs.append(inputs)
            trace.outputs.append(outputs + own[f"{name}.bias"].unsqueeze(1))
        return trace

    def trace_gradients(self, trace: Trace, slope: Tensor) -> FactoredGradients:
        """The gradients of a loss whose gradient in the logits of a trace is `slope` [S, B, K]."""
        return FactoredGradients(self._factors(trace, slope), self.parameters)

    def _factors(self, trace: Trace, gradient: Tensor) -> Factors:
        factors: Factors = []
        for place in range(len(self.layers) - 1, -1, -1):
            name, inputs = self.layers[place], trace.inputs[place]
            factors.append((name, gradient, inputs))
            if place:
                gradient = trial_products(gradient, self.parameters[f"{name}.weight"])
                gradient = torch.ops.aten.threshold_backward(gradient, inputs, 0)
        return factors

    @override
    def gradients_of_change(
        self, inputs: Tensor, gradients: LossGradients, lr: Tensor, weight: Tensor
    ) -> LossGradients:
        if not isinstance(gradients, FactoredGradients) or gradients.others:
            return super().gradients_of_change(inputs, gradients, lr, weight)
        with torch.no_grad():
            trace = self.trace(inputs)
            _, slope = mse_and_slope(trace.logits, self._after(trace, gradients, lr), weight)
            return self.trace_gradients(trace, slope)

    def _after(self, trace: Trace, gradients: FactoredGradients, lr: Tensor) -> Tensor:
        """The logits after a step along the gradients, without taking it."""
        outputs = trace.outputs[0]
        for place, layer in enumerate(self.layers):
            inputs = outputs.relu() if place else trace.inputs[0]
            if place:
                outputs = self._run([layer], inputs).logits
            for name, gradient, seen in gradients.factors:
                if name == layer:
                    within = trial_products(inputs, seen.mT) + 1  # + 1: the bias
                    outputs = outputs - lr.view(-1, 1, 1) * trial_products(within, gradient)
        return outputs

    @override
    def name_draws(self, *key: int) -> None:
        """Do nothing: its layers draw no random numbers."""

    @override
    def move(self, gradients: Mapping[str, Tensor], lr: Tensor) -> None:
        if isinstance(gradients, FactoredGradients):
            gradients = gradients.move(self.parameters, lr)
        super().move(gradients, lr)

    @override
    @torch.no_grad()
    def batch_gradients(
        self, inputs: Tensor, labels: Tensor, sizes: Sequence[int]
    ) -> list[LossGradients]:
        trace = self.trace(inputs)
        batches = [slice(*ends) for ends in pairwise(accumulate(sizes, initial=0))]
        slopes = [
            cross_entropy_and_slope(trace.logits[:, own], labels[:, own], None, None, 1.0)[1]
            for own in batches
        ]
        factors = self._factors(trace, torch.cat(slopes, dim=1))
        found: list[LossGradients] = []
        for own, size in zip(batches, sizes, strict=True):
            parts = [(name, gradient[:, own], seen[:, own]) for name, gradient, seen in factors]
            gradients = FactoredGradients(parts, self.parameters)
            found.append(gradients if size <= _FEW else gradients.formed())
        return found

    @override
    @torch.no_grad()
    def sample_gradients(self, inputs: Tensor, labels: Tensor) -> FactoredSamples:
        trace = self.trace(inputs)
        # The sum over samples instead of the mean, so that each has its own gradient.
        _, slope = cross_entropy_and_slope(trace.logits, labels, None, None, float(labels.shape[1]))
        return FactoredSamples(self._factors(trace, slope))
