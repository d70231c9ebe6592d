"""Stacks of multilayer perceptrons as matrix products of each trial, without autograd.

Autograd works as well, for losses that are not written as terms.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from typing_extensions import override

from remask.config import Precision
from remask.engine.module_stack import ModuleStack
from remask.losses import cross_entropy_and_slope, mse_and_slope
from remask.nets.stacked import (
    Gradients,
    LossGradients,
    SampleGradients,
    StackedNet,
    State,
    stacked_state,
    trial_products,
)

Factors = list[tuple[str, Tensor, Tensor]]
"""Per linear layer: its name, the gradient of its outputs [S, B, out], its inputs [S, B, in]."""


class Trace(NamedTuple):
    """A forward pass with what its backward pass needs."""

    inputs: list[Tensor]
    """Those of each linear layer."""
    logits: Tensor


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


class FactoredSamples(SampleGradients):
    """Gradients of single samples: outer products that are never formed."""

    def __init__(self, factors: Factors) -> None:
        self._factors = factors

    @override
    def inner(self, other: SampleGradients) -> Tensor:
        assert isinstance(other, FactoredSamples)  # of the same stack
        products = [
            trial_products(gradient, others.mT) * (trial_products(inputs, their.mT) + 1)  # 1: bias
            for (_, gradient, inputs), (_, others, their) in zip(
                self._factors, other._factors, strict=True
            )
        ]
        return reduce(torch.add, products)

    @override
    def squares(self, weights: Tensor) -> Gradients:
        sums = {}
        for name, gradient, inputs in self._factors:
            squared = gradient.square() * weights.unsqueeze(2)
            sums[f"{name}.weight"] = trial_products(squared.mT, inputs.square())
            sums[f"{name}.bias"] = squared.sum(1)
        return sums


class LinearStack(StackedNet):
    """A stack of multilayer perceptrons whose linear layers `relu_chain` returned."""

    couples_samples = False
    samples_at_once = 512
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
        own, seen, outputs = self.parameters if parameters is None else parameters, [], inputs
        for place, name in enumerate(layers):
            seen.append(outputs.relu() if place else inputs)
            products = trial_products(seen[-1], own[f"{name}.weight"].mT)
            outputs = products + own[f"{name}.bias"].unsqueeze(1)
        return Trace(seen, outputs)

    @torch.no_grad()
    def follow(self, trace: Trace, slope: Tensor, lr: Tensor) -> None:
        """Take the step of `trace_gradients` with learning rates [S], without forming them."""
        step = -lr.view(-1, 1, 1)
        for name, gradient, inputs in self._factors(trace, slope):
            scaled = gradient * step
            self.parameters[f"{name}.weight"].add_(trial_products(scaled.mT, inputs))
            self.parameters[f"{name}.bias"].add_(scaled.sum(1))

    @torch.no_grad()
    def trace_gradients(self, trace: Trace, slope: Tensor) -> LossGradients:
        """The gradients of a loss whose gradient in the logits of a trace is `slope` [S, B, K]."""
        return self._formed(self._factors(trace, slope))

    def _formed(self, factors: Factors) -> LossGradients:
        found = {}
        for name, gradient, inputs in factors:
            found[f"{name}.weight"] = trial_products(gradient.mT, inputs)
            found[f"{name}.bias"] = gradient.sum(1)
        return LossGradients({name: found[name] for name in self.parameters})

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
    def name_draws(self, *key: int) -> None:
        """Do nothing: its layers draw no random numbers."""

    @override
    @torch.no_grad()
    def gradients_of_change(
        self, inputs: Tensor, gradients: Gradients, lr: Tensor, weight: Tensor
    ) -> LossGradients:
        trace = self.trace(inputs)
        after = self(inputs, self.moved(gradients, lr))
        _, slope = mse_and_slope(trace.logits, after, weight)
        return self.trace_gradients(trace, slope)

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
        return [
            self._formed([(name, slope[:, own], seen[:, own]) for name, slope, seen in factors])
            for own in batches
        ]

    @override
    @torch.no_grad()
    def sample_gradients(self, inputs: Tensor, labels: Tensor) -> FactoredSamples:
        trace = self.trace(inputs)
        # The sum over samples instead of the mean, so that each has its own gradient.
        _, slope = cross_entropy_and_slope(trace.logits, labels, None, None, float(labels.shape[1]))
        return FactoredSamples(self._factors(trace, slope))


def stack_nets(
    nets: Sequence[nn.Module],
    device: torch.device | str = "cpu",
    *,
    seeds: Sequence[int] | None = None,
    name: str | None = None,
    precision: Precision = "float32",
) -> StackedNet:
    """Stack networks of one architecture, in the fastest way that supports it.

    `seeds`, one per net, seed the random numbers that a net draws in training (dropout). Messages
    call the net `name`. With the precision "bf16", layers compute in bfloat16.
    """
    layers = relu_chain(nets[0])
    if layers is not None and precision == "float32":
        return LinearStack(nets, layers, device)
    seeds = range(len(nets)) if seeds is None else seeds
    return ModuleStack(nets, seeds, device, name, bfloat16=precision == "bf16")
