"""One module that is called with the parameters and buffers of any network of a stack."""

import copy
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call

from remask.methods import MethodError
from remask.nets.stacked import State


class FunctionalModule:
    """A copy of a net that is called with the state of one network at a time."""

    def __init__(
        self, net: nn.Module, device: torch.device, *, channels_last: bool, bfloat16: bool
    ) -> None:
        # It keeps its parameters, since moving them to the meta device would untie tied ones.
        self.module = copy.deepcopy(net)
        self.normalising = [
            (name, module)
            for name, module in self.module.named_modules()
            if isinstance(module, nn.modules.batchnorm._NormBase)
        ]
        """The layers with batch statistics, by name."""
        self.head: str | None = None
        """The linear layer that is called last, once `features` has found it."""
        self._device, self._channels_last, self._bfloat16 = device, channels_last, bfloat16
        self._tied = _has_tied_tensors(self.module)
        self._mode = ""
        # The dicts in which the module stores its tensors, with the names there and in the state.
        self._places: list[tuple[dict[str, Any], str, str]] = [
            (tensors, key, f"{prefix}.{key}" if prefix else key)
            for prefix, part in self.module.named_modules()
            for tensors in (part._parameters, part._buffers)
            for key, tensor in tensors.items()
            if tensor is not None
        ]

    def enter(self, mode: Literal["training", "evaluation", "teaching"]) -> None:
        """Switch the mode; "teaching" is evaluation with the statistics of the batch."""
        if mode == self._mode:  # train() walks through all modules
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
            return self._run(state, inputs)
        # No cache: under vmap it would keep tensors that end with the forward pass.
        with torch.autocast(self._device.type, torch.bfloat16, cache_enabled=False):
            return self._run(state, inputs).float()

    def _run(self, state: State, inputs: Tensor) -> Tensor:
        if self._tied:
            outputs: Tensor = functional_call(self.module, state, (inputs,), tie_weights=True)
            return outputs
        # As functional_call, but faster: the places of the tensors are known.
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
        """The inputs of the last linear layer, [B, *shape] -> [B, F]; sets `head` to its name."""
        caught: list[tuple[str, Tensor]] = []
        hooks = [
            layer.register_forward_pre_hook(
                lambda _, given, name=name: caught.append((name, given[0]))
            )
            for name, layer in self.module.named_modules()
            if isinstance(layer, nn.Linear)
        ]
        try:
            self.call(state, inputs)
        finally:
            for hook in hooks:
                hook.remove()
        if not caught:
            raise MethodError("a method that uses features needs a net with a linear last layer")
        self.head, features = caught[-1]
        return features.float() if self._bfloat16 else features


def _has_tied_tensors(net: nn.Module) -> bool:
    """Whether a parameter or buffer has two names."""
    return any(
        len(list(named())) < len(list(named(remove_duplicate=False)))
        for named in (net.named_parameters, net.named_buffers)
    )
