"""Stacks of multilayer perceptrons, as batched matmuls.

The backward of a step never writes the weight gradient of a forward to memory: it keeps the two
factors of it, and the descent adds their product to the weights in one batched matmul. For small
nets that is most of the time saved. What a loss computes from the parameters in any other way (a
penalty, a forward with parameters of its own) reaches them as ordinary gradients, and is added.
"""

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import override

from remask.nets import Gradients, SampleGradients, StackedNet, State, stacked_state

Layers = Sequence[tuple[str, nn.Module]]
"""By name, in their order."""
Factors = list[tuple[str, Tensor, Tensor]]
"""(layer, gradient of its outputs [S, B, out], its inputs [S, B, in]), in the order of backward."""

_ELEMENTWISE = (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.ELU, nn.LeakyReLU, nn.SiLU, nn.Identity)


def linear_chain(net: nn.Module) -> list[tuple[str, nn.Module]] | None:
    """The layers of a net that is flatten, linear layers and elementwise functions, in order."""
    if type(net) is not nn.Sequential or _has_hooks(net):
        return None
    # Not named_children(): it leaves out the second place of a layer that stands in two.
    layers = list(net._modules.items())
    first = [layer for _, layer in layers[:1]]
    if not (first and type(first[0]) is nn.Flatten and first[0].start_dim == 1):
        return None
    for _, layer in layers[1:]:
        plain_linear = type(layer) is nn.Linear and layer.bias is not None
        if not (plain_linear or type(layer) in _ELEMENTWISE):
            return None
    parameters = [parameter for _, layer in layers for parameter in layer.parameters()]
    shared = len({id(parameter) for parameter in parameters}) < len(parameters)
    if shared or not all(parameter.requires_grad for parameter in parameters):
        return None
    return layers[1:]


def _has_hooks(net: nn.Module) -> bool:
    """Whether anything is attached to the net that only its own forward would run."""
    return any(
        module._forward_hooks or module._forward_pre_hooks or hasattr(module, "parametrizations")
        for module in net.modules()
    )


class _Tape:
    """Where a backward of the stack's own leaves the factors of the weights' gradients."""

    def __init__(self) -> None:
        self.factors: Factors | None = None

    @contextmanager
    def recording(self) -> Iterator[Factors]:
        """Record in place of computing the weights' gradients."""
        self.factors = []
        try:
            yield self.factors
        finally:
            self.factors = None


class _Chain(torch.autograd.Function):
    """Layers of a stack as one function, with its backward by hand: much less work for autograd.

    If there is a tape, a backward records the factors of the weights' gradients. In any other, such
    as one that a method runs inside its loss, the layers are like all others.
    """

    @staticmethod
    def forward(
        ctx: Any,
        layers: Layers,
        tape: _Tape,
        inputs: Tensor,  # [S, B, in]
        *parameters: Tensor,  # weight [S, out, in] and bias [S, out] of each linear layer
    ) -> Tensor:
        ctx.save_for_backward(inputs, *parameters)
        ctx.layers, ctx.tape = layers, tape
        ctx.hidden, outputs = _run(layers, inputs, parameters)
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients
        layers, to_inputs, hidden = ctx.layers, ctx.needs_input_grad[2], ctx.hidden
        inputs, *parameters = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a gradient of this gradient, all must hang together
            hidden, _ = _run(layers, inputs, parameters)
        factors: Factors = []
        place = len(layers)
        for weight in reversed(parameters[0::2]):
            place -= 1
            while not isinstance(layers[place][1], nn.Linear):
                gradient = _slope(layers[place][1], hidden[place], gradient)
                place -= 1
            factors.append((layers[place][0], gradient, hidden[place]))
            if weight is not parameters[0] or to_inputs:
                gradient = torch.bmm(gradient, weight)
        for before in reversed(range(place if to_inputs else 0)):
            gradient = _slope(layers[before][1], hidden[before], gradient)
        back = gradient if to_inputs else None
        if ctx.tape.factors is not None:
            ctx.tape.factors.extend(factors)
            return None, None, back, *[None] * len(parameters)
        own = [part for factor in reversed(factors) for part in _products(*factor[1:])]
        return None, None, back, *own


def _run(
    layers: Layers, inputs: Tensor, parameters: Iterable[Tensor]
) -> tuple[list[Tensor], Tensor]:
    """The inputs of each layer, and the outputs of the last."""
    hidden, own = [], iter(parameters)
    for _, layer in layers:
        hidden.append(inputs)
        if isinstance(layer, nn.Linear):
            weight, bias = next(own), next(own)
            inputs = torch.baddbmm(bias.unsqueeze(1), inputs, weight.transpose(1, 2))
        else:
            inputs = torch.relu(inputs) if type(layer) is nn.ReLU else layer(inputs)
    return hidden, inputs


def _slope(layer: nn.Module, inputs: Tensor, gradient: Tensor) -> Tensor:
    """The gradient of an elementwise function's inputs, from that of its outputs."""
    if type(layer) is nn.ReLU:
        slope: Tensor = torch.ops.aten.threshold_backward(gradient, inputs, 0)
        return slope
    twice = torch.is_grad_enabled()
    with torch.enable_grad():
        inputs = inputs if twice else inputs.detach().requires_grad_()
        (slope,) = torch.autograd.grad(layer(inputs), inputs, gradient, create_graph=twice)
    return slope


def _products(gradient: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of a linear layer's weight and bias, from their factors."""
    return torch.bmm(gradient.transpose(1, 2), inputs), gradient.sum(1)


def _of(layers: Layers, parameters: Mapping[str, Tensor]) -> list[Tensor]:
    """The weight and the bias of each linear layer, as `_run` takes them."""
    return [
        parameters[f"{name}.{kind}"]
        for name, layer in layers
        if isinstance(layer, nn.Linear)
        for kind in ("weight", "bias")
    ]


def _out_of_place(layer: nn.Module) -> nn.Module:
    """A copy of a layer that leaves its inputs as they are: the backward needs them."""
    own = copy.deepcopy(layer)
    if hasattr(own, "inplace"):
        own.inplace = False  # type: ignore[assignment]
    return own


class LinearStack(StackedNet):
    """A stack of multilayer perceptrons."""

    couples_samples = False
    samples_at_once = 512  # in factors

    def __init__(
        self,
        nets: Sequence[nn.Module],
        layers: list[tuple[str, nn.Module]],
        device: torch.device | str,
    ) -> None:
        self.parameters, self.buffers = stacked_state(nets, device)
        self.module = copy.deepcopy(nets[0])
        self._layers = [(name, _out_of_place(layer)) for name, layer in layers]
        self._head = max(
            (place for place, (_, layer) in enumerate(layers) if isinstance(layer, nn.Linear)),
            default=-1,
        )
        self._tape = _Tape()

    @override
    def __call__(self, inputs: Tensor, parameters: Mapping[str, Tensor] | None = None) -> Tensor:
        if parameters is not None:
            return _run(self._layers, inputs.flatten(2), _of(self._layers, parameters))[1]
        return self._forward(self._layers, inputs.flatten(2))

    @override
    @torch.no_grad()
    def predict(self, inputs: Tensor) -> Tensor:
        return self._forward(self._layers, inputs.flatten(1).expand(self._trials, -1, -1))

    @override
    @torch.no_grad()
    def evaluate(self, inputs: Tensor, state: State | None = None) -> Tensor:
        own = self.parameters if state is None else state
        return _run(self._layers, inputs.flatten(2), _of(self._layers, own))[1]

    @override
    def features(self, inputs: Tensor, *, training: bool) -> Tensor:
        with torch.set_grad_enabled(training and torch.is_grad_enabled()):
            return self._forward(self._layers[: self._head], inputs.flatten(2))

    @override
    def head(self, features: Tensor) -> Tensor:
        return self._forward(self._layers[self._head :], features)

    def _forward(self, layers: Layers, inputs: Tensor) -> Tensor:
        parameters = _of(layers, self.parameters)
        if not (parameters and torch.is_grad_enabled()):
            return _run(layers, inputs, parameters)[1]
        outputs: Tensor = _Chain.apply(layers, self._tape, inputs, *parameters)  # type: ignore[no-untyped-call]
        return outputs

    @override
    def name_draws(self, *key: int) -> None:
        """Its layers draw nothing."""

    @override
    def gradients(self, loss: Tensor) -> Gradients:
        factors, gradients = self._backward(loss)
        for name, gradient, inputs in factors:
            names = (f"{name}.weight", f"{name}.bias")
            for key, value in zip(names, _products(gradient, inputs), strict=True):
                # A layer is met again by every forward in the loss.
                gradients[key] = gradients[key] + value if key in gradients else value
        return {name: gradients[name] for name in self.parameters if name in gradients}

    @override
    def descend(self, loss: Tensor, lr: Tensor) -> None:
        step = -lr.view(-1, 1, 1)
        factors, gradients = self._backward(loss)
        with torch.no_grad():
            for name, gradient, inputs in factors:
                weight, bias = self.parameters[f"{name}.weight"], self.parameters[f"{name}.bias"]
                scaled = gradient * step
                weight.baddbmm_(scaled.transpose(1, 2), inputs)
                bias.add_(scaled.sum(1))
        self.move(gradients, lr)

    @override
    @torch.enable_grad()
    def sample_gradients(self, inputs: Tensor, labels: Tensor) -> "FactoredGradients":
        logits = self(inputs)
        own = logits.log_softmax(2).gather(2, labels.unsqueeze(2))
        factors, _ = self._backward(-own.sum((1, 2)))  # samples do not meet in a sum
        return FactoredGradients(factors)

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
            outputs = torch.bmm(gradient, others.transpose(1, 2))
            part = outputs * (torch.bmm(inputs, their.transpose(1, 2)) + 1)  # + 1 for the bias
            total = part if total is None else total + part
        assert total is not None  # a net has a layer
        return total

    def squares(self, weights: Tensor) -> Gradients:
        """The weighted sums: an outer product squared is the outer product of the squares."""
        sums = {}
        for name, gradient, inputs in self._factors:
            squared = gradient.square() * weights.unsqueeze(2)
            sums[f"{name}.weight"] = torch.bmm(squared.transpose(1, 2), inputs.square())
            sums[f"{name}.bias"] = squared.sum(1)
        return sums
