"""A module that lends its forward to the networks of a stack."""

import copy
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call

from remask.methods import MethodError
from remask.nets import State


class LentModule:
    """Calls a copy of a net with the state of one network at a time."""

    def __init__(
        self, net: nn.Module, device: torch.device, *, channels_last: bool, bfloat16: bool
    ) -> None:
        # It keeps its own parameters, because moving them to the meta device would untie the ones
        # that are tied.
        self.module = copy.deepcopy(net)
        self.normalising = [
            (name, module)
            for name, module in self.module.named_modules()
            if isinstance(module, nn.modules.batchnorm._NormBase)
        ]
        """Its layers with batch statistics, by name."""
        self.head: str | None = None
        """The linear layer that is called last, once `features` has met it."""
        self._device, self._channels_last, self._bfloat16 = device, channels_last, bfloat16
        self._tied = _has_tied_tensors(self.module)
        self._mode = ""  # that the module is in
        # Where the module keeps its parameters and buffers, by what they are called there and here.
        self._places: list[tuple[dict[str, Any], str, str]] = [
            (tensors, key, f"{prefix}.{key}" if prefix else key)
            for prefix, part in self.module.named_modules()
            for tensors in (part._parameters, part._buffers)
            for key, tensor in tensors.items()
            if tensor is not None
        ]

    def enter(self, mode: Literal["training", "evaluation", "teaching"]) -> None:
        """Put the module in a mode, if it is in another: that is a walk through all its parts."""
        if mode == self._mode:
            return
        self.module.train(mode == "training")
        for _, module in self.normalising if mode == "teaching" else ():
            module.train()
        self._mode = mode

    def call(self, state: State, inputs: Tensor) -> Tensor:
        """Logits: [B, *shape] -> [B, K]."""
        if self._channels_last and inputs.ndim == 4:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        if not self._bfloat16:
            logits: Tensor = self._run(state, inputs)
            return logits
        # No cache: under vmap it would keep tensors that end with the forward.
        with torch.autocast(self._device.type, torch.bfloat16, cache_enabled=False):
            logits = self._run(state, inputs)
        return logits.float()

    def _run(self, state: State, inputs: Tensor) -> Tensor:
        if self._tied:
            outputs: Tensor = functional_call(self.module, state, (inputs,), tie_weights=self._tied)
            return outputs
        # The same, in less time: it looks for every tensor's place anew.
        own = [(tensors, key, tensors[key]) for tensors, key, _ in self._places]
        try:
            for tensors, key, name in self._places:
                tensors[key] = state[name]
            outputs = self.module(inputs)
        finally:
            for tensors, key, tensor in own:
                tensors[key] = tensor
        return outputs

    def features(self, state: State, inputs: Tensor) -> Tensor:
        """What the last linear layer sees: [B, *shape] -> [B, F]; `head` is then its name."""
        caught: list[tuple[nn.Linear, Tensor]] = []
        linears: dict[nn.Module, str] = {
            layer: name
            for name, layer in self.module.named_modules()
            if isinstance(layer, nn.Linear)
        }
        hooks = [
            layer.register_forward_pre_hook(lambda own, given: caught.append((own, given[0])))
            for layer in linears
        ]
        try:
            self.call(state, inputs)
        finally:
            for hook in hooks:
                hook.remove()
        if not caught:
            raise MethodError("a method that uses features needs a net with a linear last layer")
        last, features = caught[-1]
        self.head = linears[last]
        return features.float() if self._bfloat16 else features


def _has_tied_tensors(net: nn.Module) -> bool:
    """Whether a parameter or buffer has two names; to look for them takes longer than a layer."""
    return any(
        len(list(named())) < len(list(named(remove_duplicate=False)))
        for named in (net.named_parameters, net.named_buffers)
    )
