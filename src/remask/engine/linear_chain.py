"""A chain of linear layers and elementwise functions, stacked, with its backward by hand.

The backward does not form the gradient of a weight: it gives the two factors of it.
"""

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from remask.engine.products import linear, product
from remask.nets import Factors

Layers = Sequence[tuple[str, nn.Module]]
"""By name, in their order."""

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


class Tape:
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


class Chain(torch.autograd.Function):
    """Layers of a stack as one function, with its backward by hand: much less work for autograd.

    If there is a tape, a backward records the factors of the weights' gradients. In any other, such
    as one that a method runs inside its loss, the layers are like all others.
    """

    @staticmethod
    def forward(
        ctx: Any,
        layers: Layers,
        tape: Tape,
        inputs: Tensor,  # [S, B, in]
        *parameters: Tensor,  # weight [S, out, in] and bias [S, out] of each linear layer
    ) -> Tensor:
        """The outputs: [S, B, out]."""
        ctx.save_for_backward(inputs, *parameters)
        ctx.layers, ctx.tape = layers, tape
        ctx.hidden, outputs = run_chain(layers, inputs, parameters)
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of inputs and parameters, or with a tape that of the inputs alone."""
        (gradient,) = gradients
        layers, to_inputs, hidden = ctx.layers, ctx.needs_input_grad[2], ctx.hidden
        inputs, *parameters = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a gradient of this gradient, all must hang together
            hidden, _ = run_chain(layers, inputs, parameters)
        factors, back = run_back(layers, hidden, parameters[0::2], gradient, to_inputs=to_inputs)
        if ctx.tape.factors is not None:
            ctx.tape.factors.extend(factors)
            return None, None, back, *[None] * len(parameters)
        own = [part for factor in reversed(factors) for part in products(*factor[1:])]
        return None, None, back, *own


def run_chain(
    layers: Layers, inputs: Tensor, parameters: Iterable[Tensor]
) -> tuple[list[Tensor], Tensor]:
    """The inputs of each layer, and the outputs of the last."""
    hidden, own = [], iter(parameters)
    for _, layer in layers:
        hidden.append(inputs)
        if isinstance(layer, nn.Linear):
            weight, bias = next(own), next(own)
            inputs = linear(inputs, weight, bias)
        else:
            inputs = torch.relu(inputs) if type(layer) is nn.ReLU else layer(inputs)
    return hidden, inputs


def run_back(
    layers: Layers,
    hidden: Sequence[Tensor],
    weights: Sequence[Tensor],
    gradient: Tensor,
    *,
    to_inputs: bool = False,
) -> tuple[Factors, Tensor | None]:
    """From the gradient of the outputs to the factors, and if wanted to that of the inputs."""
    factors: Factors = []
    place = len(layers)
    for weight in reversed(weights):
        place -= 1
        while not isinstance(layers[place][1], nn.Linear):
            gradient = _slope(layers[place][1], hidden[place], gradient)
            place -= 1
        factors.append((layers[place][0], gradient, hidden[place]))
        if weight is not weights[0] or to_inputs:
            gradient = product(gradient, weight)
    for before in reversed(range(place if to_inputs else 0)):
        gradient = _slope(layers[before][1], hidden[before], gradient)
    return factors, gradient if to_inputs else None


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


def products(gradient: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of a linear layer's weight and bias, from their factors."""
    return product(gradient.mT, inputs), gradient.sum(1)


def parameters_of(layers: Layers, parameters: Mapping[str, Tensor]) -> list[Tensor]:
    """The weight and the bias of each linear layer, as `run_chain` takes them."""
    return [
        parameters[f"{name}.{kind}"]
        for name, layer in layers
        if isinstance(layer, nn.Linear)
        for kind in ("weight", "bias")
    ]


def out_of_place(layer: nn.Module) -> nn.Module:
    """A copy of a layer that leaves its inputs as they are: the backward needs them."""
    own = copy.deepcopy(layer)
    if hasattr(own, "inplace"):
        own.inplace = False  # type: ignore[assignment]  # a plain attribute
    return own
