"""Stacks of multilayer perceptrons, as batched matmuls.

The backward never writes a weight gradient to memory: it keeps the two factors of it, and the
descent adds their product to the weights in one batched matmul. For small nets that is most of the
time saved.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import override

from remask.engine.stacked_net import StackedNet, stacked_state

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


class _FactoredLinear(torch.autograd.Function):
    """A stacked linear layer whose backward records (layer, output gradient, input) on a tape."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,  # [S, B, in]
        weight: Tensor,  # [S, out, in]
        bias: Tensor,  # [S, out]
        name: str,
        tape: list[tuple[str, Tensor, Tensor]],
    ) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        ctx.name, ctx.tape = name, tape
        return torch.baddbmm(bias.unsqueeze(1), inputs, weight.transpose(1, 2))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, None, None, None]:
        (gradient,) = gradients
        inputs, weight = ctx.saved_tensors
        ctx.tape.append((ctx.name, gradient, inputs))
        back = torch.bmm(gradient, weight) if ctx.needs_input_grad[0] else None
        return back, None, None, None, None


class LinearStack(StackedNet):
    """A stack of multilayer perceptrons."""

    couples_samples = False

    def __init__(
        self,
        nets: Sequence[nn.Module],
        layers: list[tuple[str, nn.Module]],
        device: torch.device | str,
    ) -> None:
        self.parameters, self.buffers = stacked_state(nets, device)
        self._layers = [(name, copy.deepcopy(layer)) for name, layer in layers]
        self._tape: list[tuple[str, Tensor, Tensor]] = []

    @override
    def __call__(self, inputs: Tensor) -> Tensor:
        return self._run(inputs.flatten(2), self._taped)

    @override
    @torch.no_grad()
    def predict(self, inputs: Tensor) -> Tensor:
        return self._run(inputs.flatten(1).expand(self._trials, -1, -1), self._plain)

    @override
    def at(self, *moment: int) -> None:
        """Its layers draw nothing."""

    @override
    def descend(self, loss: Tensor, lr: Tensor) -> None:
        # One backward through all trials: the gradient of each loss by itself is 1.
        torch.autograd.backward(loss, torch.ones_like(loss))
        step = -lr.view(-1, 1, 1)
        with torch.no_grad():
            for name, gradient, inputs in self._tape:
                weight, bias = self._linear(name)
                scaled = gradient * step
                weight.baddbmm_(scaled.transpose(1, 2), inputs)
                bias.add_(scaled.sum(1))
        self._tape.clear()

    def _run(self, hidden: Tensor, linear: Callable[[str, Tensor], Tensor]) -> Tensor:
        for name, layer in self._layers:
            hidden = linear(name, hidden) if isinstance(layer, nn.Linear) else layer(hidden)
        return hidden

    def _taped(self, name: str, inputs: Tensor) -> Tensor:
        weight, bias = self._linear(name)
        outputs: Tensor = _FactoredLinear.apply(inputs, weight, bias, name, self._tape)  # type: ignore[no-untyped-call]
        return outputs

    def _plain(self, name: str, inputs: Tensor) -> Tensor:
        weight, bias = self._linear(name)
        return torch.baddbmm(bias.unsqueeze(1), inputs, weight.transpose(1, 2))

    @property
    def _trials(self) -> int:
        return len(next(iter(self.parameters.values())))

    def _linear(self, name: str) -> tuple[Tensor, Tensor]:
        return self.parameters[f"{name}.weight"], self.parameters[f"{name}.bias"]
