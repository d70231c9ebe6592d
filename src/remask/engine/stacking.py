"""Stacked nets: S networks of one architecture, trained as one.

Every parameter carries a leading axis S. `stack_nets` takes ordinary nn.Modules, one a trial, and
chooses how to run them together:

- `LinearStack`, for a chain of linear layers and elementwise functions. Its backward never writes
  a weight gradient to memory: it keeps the two factors of it, and the descent adds their product
  to the weights in one batched matmul. For small nets that is most of the time saved.
- `ModuleStack`, for any module: torch.func's functional_call under vmap, or the plain module when
  S is 1. Convolutions on a CPU run trial after trial, with channels last.

Parameters of different trials never meet in a reduction, so trials cannot disturb each other.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state
from typing_extensions import override

from remask.nets import net_builder


class StackedNet(ABC):
    """S networks that are evaluated and updated together."""

    parameters: dict[str, Tensor]
    """Name -> [S, ...]: leaves; those that the nets had frozen require no gradient."""
    buffers: dict[str, Tensor]
    """Name -> [S, ...]: what the networks keep besides parameters (running statistics)."""
    couples_samples: bool
    """Whether a sample's logits depend on the rest of its batch in training (batch statistics)."""

    @abstractmethod
    def __call__(self, inputs: Tensor) -> Tensor:
        """Logits in training: [S, B, *shape] -> [S, B, K]."""

    @abstractmethod
    def predict(self, inputs: Tensor) -> Tensor:
        """Logits in evaluation, without a graph, of inputs that all trials share.

        [B, *shape] -> [S, B, K].
        """

    @abstractmethod
    def descend(self, loss: Tensor, lr: Tensor) -> None:
        """One step of gradient descent on the trials' losses [S], with learning rates [S]."""

    def state(self) -> dict[str, Tensor]:
        """The tensors to save and restore; they are the live ones, not copies."""
        return {**self.parameters, **self.buffers}


def stack_nets(nets: Sequence[nn.Module], device: torch.device | str = "cpu") -> StackedNet:
    """Stack networks of one architecture, in the fastest way that fits it."""
    chain = _linear_chain(nets[0])
    if chain is not None:
        return LinearStack(nets, chain, device)
    return ModuleStack(nets, device)


def preferred_stack(net: str, device: torch.device | str = "cpu") -> int:
    """How many trials of a named net to stack.

    Small matrix products leave a machine idle, and stacked ones do not; a convolution fills a CPU
    by itself, and stacked ones only take more memory.
    """
    with torch.device("meta"):  # only its layers matter, so no weights are made
        module = net_builder(net)((3, 32, 32), 10)
    return 1 if _convolves(module) and torch.device(device).type == "cpu" else 10


_ELEMENTWISE = (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.ELU, nn.LeakyReLU, nn.SiLU, nn.Identity)


def _linear_chain(net: nn.Module) -> list[tuple[str, nn.Module]] | None:
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
        self.parameters, self.buffers = _stacked_state(nets, device)
        self._layers = [(name, copy.deepcopy(layer)) for name, layer in layers]
        self._tape: list[tuple[str, Tensor, Tensor]] = []

    @override
    def __call__(self, inputs: Tensor) -> Tensor:
        hidden = inputs.flatten(2)
        for name, layer in self._layers:
            if isinstance(layer, nn.Linear):
                weight, bias = self._linear(name)
                hidden = _FactoredLinear.apply(hidden, weight, bias, name, self._tape)  # type: ignore[no-untyped-call]
            else:
                hidden = layer(hidden)
        return hidden

    @override
    @torch.no_grad()
    def predict(self, inputs: Tensor) -> Tensor:
        hidden = inputs.flatten(1).expand(self._trials, -1, -1)
        for name, layer in self._layers:
            if isinstance(layer, nn.Linear):
                weight, bias = self._linear(name)
                hidden = torch.baddbmm(bias.unsqueeze(1), hidden, weight.transpose(1, 2))
            else:
                hidden = layer(hidden)
        return hidden

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

    @property
    def _trials(self) -> int:
        return len(next(iter(self.parameters.values())))

    def _linear(self, name: str) -> tuple[Tensor, Tensor]:
        return self.parameters[f"{name}.weight"], self.parameters[f"{name}.bias"]


class ModuleStack(StackedNet):
    """A stack of any modules."""

    def __init__(self, nets: Sequence[nn.Module], device: torch.device | str) -> None:
        on_cpu = torch.device(device).type == "cpu"
        self._channels_last = on_cpu and _convolves(nets[0]) and _safe_with_channels_last(nets[0])
        self.parameters, self.buffers = _stacked_state(nets, device)
        if self._channels_last:
            self.parameters = {n: _with_channels_last(v) for n, v in self.parameters.items()}
        # The module only lends its forward. It keeps its own parameters, because moving them to
        # the meta device would untie the ones that are tied.
        self._module = copy.deepcopy(nets[0])
        self._trials = len(nets)
        if any(isinstance(module, nn.modules.dropout._DropoutNd) for module in nets[0].modules()):
            raise ValueError(
                "the net has dropout, which draws from torch's one global random stream, so a "
                "trial would depend on its neighbours; use a net without dropout"
            )
        self.couples_samples = any(
            isinstance(module, nn.modules.batchnorm._NormBase) for module in nets[0].modules()
        )

    @override
    def __call__(self, inputs: Tensor) -> Tensor:
        self._module.train()
        return self._forward(inputs, self.parameters, inputs_stacked=True)

    @override
    @torch.no_grad()
    def predict(self, inputs: Tensor) -> Tensor:
        self._module.eval()
        return self._forward(inputs, self.parameters, inputs_stacked=False)

    @override
    def descend(self, loss: Tensor, lr: Tensor) -> None:
        trained = [value for value in self.parameters.values() if value.requires_grad]
        gradients = torch.autograd.grad(loss, trained, torch.ones_like(loss), allow_unused=True)
        with torch.no_grad():
            for parameter, gradient in zip(trained, gradients, strict=True):
                if gradient is not None:  # a parameter that this forward did not use
                    rates = lr.view(-1, *[1] * (parameter.ndim - 1))
                    parameter.addcmul_(gradient, rates, value=-1)

    def _forward(
        self, inputs: Tensor, parameters: dict[str, Tensor], *, inputs_stacked: bool
    ) -> Tensor:
        if self._trials == 1 or self._channels_last:  # the plain module, at its own speed
            states = _by_trial({**parameters, **self.buffers}, self._trials)
            plain = inputs if inputs_stacked else inputs.expand(self._trials, *inputs.shape)
            logits = [self._call(state, plain[trial]) for trial, state in enumerate(states)]
            return logits[0].unsqueeze(0) if self._trials == 1 else torch.stack(logits)
        run = torch.vmap(self._call, in_dims=(0, 0 if inputs_stacked else None))
        stacked: Tensor = run({**parameters, **self.buffers}, inputs)
        return stacked

    def _call(self, state: dict[str, Tensor], inputs: Tensor) -> Tensor:
        if self._channels_last and inputs.ndim == 4:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        logits: Tensor = functional_call(self._module, state, (inputs,))
        return logits


def _stacked_state(
    nets: Sequence[nn.Module], device: torch.device | str
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    parameters, buffers = stack_module_state(list(nets))
    return (
        {
            name: value.detach().to(device).requires_grad_(value.requires_grad)
            for name, value in parameters.items()
        },
        {name: value.detach().to(device) for name, value in buffers.items()},
    )


def _by_trial(stacked: dict[str, Tensor], trials: int) -> list[dict[str, Tensor]]:
    """The state of each trial, as views: name -> [S, ...] to S times name -> [...]."""
    if trials == 1:  # not unbind, whose backward would copy every gradient
        return [{name: value.squeeze(0) for name, value in stacked.items()}]
    parts = {name: value.unbind(0) for name, value in stacked.items()}
    return [{name: part[trial] for name, part in parts.items()} for trial in range(trials)]


def _convolves(net: nn.Module) -> bool:
    return any(isinstance(module, nn.Conv2d) for module in net.modules())


def _safe_with_channels_last(net: nn.Module) -> bool:
    """Whether oneDNN can train the net with channels last.

    It writes past its own memory where a 1x1 convolution with a stride has fewer input channels
    than one of its blocks, which are 8 or 16 (https://github.com/uxlfoundation/oneDNN/issues/6035).
    """
    return not any(
        set(module.kernel_size) == {1} and set(module.stride) != {1} and module.in_channels < 16
        for module in net.modules()
        if isinstance(module, nn.Conv2d)
    )


def _with_channels_last(stacked: Tensor) -> Tensor:
    """Kernels [S, out, in, h, w] with the channels last in memory; other tensors as they are."""
    if stacked.ndim != 5:
        return stacked
    # Not contiguous() of a permuted tensor: it takes a 1x1 kernel to be in order already.
    memory = torch.empty_like(stacked.movedim(2, -1), memory_format=torch.contiguous_format)
    copied = memory.movedim(-1, 2).copy_(stacked.detach())
    return copied.requires_grad_(stacked.requires_grad)
