"""Stacks of multilayer perceptrons as batched matrix products.

A backward pass never forms the gradient of a weight. It returns the two factors of it, and the
update adds their product to the weight in one batched product. For small nets that is most of the
time saved. What a loss computes from the parameters in any other way, such as a penalty, reaches
them as ordinary gradients.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from typing_extensions import override

from remask.engine.factored_gradients import FactoredGradients, FactoredSamples, Factors, form
from remask.losses import cross_entropy_and_slope, mse_and_slope
from remask.nets.stacked import LossGradients, StackedNet, State, stacked_state

_ELEMENTWISE = (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.ELU, nn.LeakyReLU, nn.SiLU, nn.Identity)
_FEW = 32  # samples: with more, inner products of factored gradients cost more than formed ones


class Layer(NamedTuple):
    """A linear layer, or an elementwise function."""

    name: str
    function: Callable[[Tensor], Tensor] | None
    """None for a linear layer."""


class Trace(NamedTuple):
    """A forward pass with what its backward pass needs."""

    hidden: Sequence[Tensor]
    """The inputs of each layer."""
    logits: Tensor


def linear_layers(net: nn.Module) -> list[Layer] | None:
    """The layers of a Sequential of Flatten, linear layers and elementwise functions, or None."""
    if type(net) is not nn.Sequential or _has_hooks(net):
        return None
    # named_children() would skip the second place of a layer that occurs twice.
    layers = list(net._modules.items())
    first = layers.pop(0)[1] if layers else None
    if type(first) is not nn.Flatten or first.start_dim != 1:
        return None
    for _, layer in layers:
        with_bias = type(layer) is nn.Linear and layer.bias is not None
        if not (with_bias or type(layer) in _ELEMENTWISE):
            return None
    parameters = [parameter for _, layer in layers for parameter in layer.parameters()]
    shared = len({id(parameter) for parameter in parameters}) < len(parameters)
    if not parameters or shared or not all(own.requires_grad for own in parameters):
        return None
    return [Layer(name, _function(layer)) for name, layer in layers]


def _has_hooks(net: nn.Module) -> bool:
    """Whether something is attached to the net that only its own forward would run."""
    return any(
        module._forward_hooks or module._forward_pre_hooks or hasattr(module, "parametrizations")
        for module in net.modules()
    )


def _function(layer: nn.Module) -> Callable[[Tensor], Tensor] | None:
    """An elementwise layer that keeps its inputs, which the backward pass needs."""
    if type(layer) is nn.Linear:
        return None
    if type(layer) is nn.ReLU:
        return torch.relu
    own = copy.deepcopy(layer)
    if hasattr(own, "inplace"):
        own.inplace = False  # type: ignore[assignment]  # a plain attribute
    return own


class _Tape:
    """Collects the factors of gradients during the engine's own backward pass."""

    def __init__(self) -> None:
        self.factors: Factors | None = None

    @contextmanager
    def recording(self) -> Iterator[Factors]:
        self.factors = []
        try:
            yield self.factors
        finally:
            self.factors = None


class _Linear(torch.autograd.Function):
    """A stacked linear layer. If the tape records, its backward pass stores factors instead."""

    @staticmethod
    def forward(
        ctx: Any, tape: _Tape, name: str, inputs: Tensor, weight: Tensor, bias: Tensor
    ) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        ctx.tape, ctx.name = tape, name
        return torch.baddbmm(bias.unsqueeze(1), inputs, weight.mT)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,), (inputs, weight) = gradients, ctx.saved_tensors
        back = torch.bmm(gradient, weight) if ctx.needs_input_grad[2] else None
        if ctx.tape.factors is not None:
            ctx.tape.factors.append((ctx.name, gradient, inputs.detach()))
            return None, None, back, None, None
        return None, None, back, *form(gradient, inputs)


class LinearStack(StackedNet):
    """A stack of multilayer perceptrons with the layers `linear_layers` returned."""

    couples_samples = False
    samples_at_once = 512  # in factors

    def __init__(
        self, nets: Sequence[nn.Module], layers: Sequence[Layer], device: torch.device | str
    ) -> None:
        self.parameters, self.buffers = stacked_state(nets, device)
        self.module = copy.deepcopy(nets[0])
        self._layers = layers
        linear = [place for place, layer in enumerate(layers) if layer.function is None]
        self._first, self._head = linear[0], linear[-1]
        self._tape = _Tape()

    @override
    def __call__(self, inputs: Tensor, parameters: Mapping[str, Tensor] | None = None) -> Tensor:
        return self._run(self._layers, inputs.flatten(2), parameters).logits

    @override
    @torch.no_grad()
    def predict(self, inputs: Tensor) -> Tensor:
        trials = len(next(iter(self.parameters.values())))
        return self._run(self._layers, inputs.flatten(1).expand(trials, -1, -1)).logits

    @override
    @torch.no_grad()
    def evaluate(self, inputs: Tensor, state: State | None = None) -> Tensor:
        return self(inputs, state)

    @override
    def features(self, inputs: Tensor, *, training: bool) -> Tensor:
        with torch.set_grad_enabled(training and torch.is_grad_enabled()):
            return self._run(self._layers[: self._head], inputs.flatten(2)).logits

    @override
    def head(self, features: Tensor) -> Tensor:
        return self._run(self._layers[self._head :], features).logits

    def trace(self, inputs: Tensor) -> Trace:
        """Run a forward pass on [S, B, *shape], for `trace_gradients`."""
        return self._run(self._layers, inputs.flatten(2))

    def _run(
        self,
        layers: Sequence[Layer],
        inputs: Tensor,
        parameters: Mapping[str, Tensor] | None = None,
    ) -> Trace:
        recorded = parameters is None and torch.is_grad_enabled()
        own = self.parameters if parameters is None else parameters
        hidden = []
        for name, function in layers:
            hidden.append(inputs)
            if function is not None:
                inputs = function(inputs)
                continue
            weight, bias = own[f"{name}.weight"], own[f"{name}.bias"]
            if recorded:
                inputs = _Linear.apply(self._tape, name, inputs, weight, bias)  # type: ignore[no-untyped-call]
            else:
                inputs = torch.baddbmm(bias.unsqueeze(1), inputs, weight.mT)
        return Trace(hidden, inputs)

    def trace_gradients(self, trace: Trace, slope: Tensor) -> FactoredGradients:
        """The gradients of a loss whose gradient in the logits of a trace is `slope` [S, B, K]."""
        return FactoredGradients(self._factors(trace, slope), {}, self.parameters)

    def _factors(self, trace: Trace, gradient: Tensor) -> Factors:
        factors: Factors = []
        for place in range(len(self._layers) - 1, self._first - 1, -1):
            (name, function), inputs = self._layers[place], trace.hidden[place]
            if function is not None:
                gradient = _slope(function, inputs, gradient)
                continue
            factors.append((name, gradient, inputs))
            if place > self._first:
                gradient = torch.bmm(gradient, self.parameters[f"{name}.weight"])
        return factors

    @override
    def gradients(self, loss: Tensor) -> FactoredGradients:
        with self._tape.recording() as factors:
            # One backward pass for all trials: the gradient of each loss by itself is 1.
            others: tuple[Tensor | None, ...] = torch.autograd.grad(
                loss, list(self.parameters.values()), torch.ones_like(loss), allow_unused=True
            )
        named = zip(self.parameters, others, strict=True)
        beside = {name: other for name, other in named if other is not None}
        return FactoredGradients(factors, beside, self.parameters)

    @override
    @torch.no_grad()
    def gradients_of_change(
        self, inputs: Tensor, gradients: LossGradients, lr: Tensor, weight: Tensor
    ) -> LossGradients:
        if not isinstance(gradients, FactoredGradients):
            return super().gradients_of_change(inputs, gradients, lr, weight)
        trace = self.trace(inputs)
        _, slope = mse_and_slope(trace.logits, self._after(trace, gradients, lr), weight)
        return self.trace_gradients(trace, slope)

    def _after(self, trace: Trace, gradients: FactoredGradients, lr: Tensor) -> Tensor:
        """The logits after a step along the gradients, without taking it."""
        rates, before = lr.view(-1, 1, 1), [*trace.hidden, trace.logits]
        outputs = before[0]
        for place, layer in enumerate(self._layers):
            inputs = outputs
            if inputs is before[place]:  # unchanged so far
                outputs = before[place + 1]
            else:
                outputs = self._run([layer], inputs).logits
            if layer.function is None:
                for along in gradients.outputs(layer.name, inputs):
                    outputs = outputs - rates * along
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
            gradients = FactoredGradients(parts, {}, self.parameters)
            found.append(gradients if size <= _FEW else gradients.formed())
        return found

    @override
    @torch.no_grad()
    def sample_gradients(self, inputs: Tensor, labels: Tensor) -> FactoredSamples:
        trace = self.trace(inputs)
        # The sum over samples instead of the mean, so that each has its own gradient.
        _, slope = cross_entropy_and_slope(trace.logits, labels, None, None, float(labels.shape[1]))
        return FactoredSamples(self._factors(trace, slope))


def _slope(function: Callable[[Tensor], Tensor], inputs: Tensor, gradient: Tensor) -> Tensor:
    """The gradient of an elementwise function's inputs, from that of its outputs."""
    if function is torch.relu:
        slope: Tensor = torch.ops.aten.threshold_backward(gradient, inputs, 0)
        return slope
    with torch.enable_grad():
        inputs = inputs.detach().requires_grad_()
        (slope,) = torch.autograd.grad(function(inputs), inputs, gradient)
    return slope
