"""Stacks of any modules: torch.func's functional_call, under vmap or trial after trial.

Trial after trial where that is faster (convolutions on a CPU, which run with channels last), where
there is one trial only, and where the net draws random numbers (dropout).
"""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.func import functional_call
from typing_extensions import override

from remask.engine.stacked_net import StackedNet, stacked_state
from remask.randomness import torch_seed


class ModuleStack(StackedNet):
    """A stack of any modules."""

    def __init__(
        self, nets: Sequence[nn.Module], seeds: Sequence[int], device: torch.device | str
    ) -> None:
        self._device = torch.device(device)
        on_cpu = self._device.type == "cpu"
        self._channels_last = on_cpu and convolves(nets[0]) and _safe_with_channels_last(nets[0])
        self.parameters, self.buffers = stacked_state(nets, device)
        if self._channels_last:
            self.parameters = {n: _with_channels_last(v) for n, v in self.parameters.items()}
        # The module only lends its forward. It keeps its own parameters, because moving them to
        # the meta device would untie the ones that are tied.
        self._module = copy.deepcopy(nets[0])
        self._seeds = list(seeds)
        self._moment: tuple[int, ...] = ()
        self._forwards = 0  # since that moment
        modules = list(nets[0].modules())
        draws = any(isinstance(module, nn.modules.dropout._DropoutNd) for module in modules)
        # Trial after trial: the plain module, at its own speed, with random numbers of its own.
        self._in_turn = len(nets) == 1 or self._channels_last or draws
        self.couples_samples = any(
            isinstance(module, nn.modules.batchnorm._NormBase) for module in modules
        )

    @override
    def __call__(self, inputs: Tensor) -> Tensor:
        self._module.train()
        self._forwards += 1
        if not self._in_turn:
            try:
                return self._at_once(inputs, inputs_stacked=True)
            except RuntimeError as error:
                if "randomness" not in str(error):
                    raise
                self._in_turn = True  # it draws in a way that no module of it tells: F.dropout
        return self._one_by_one(list(inputs), drawing=True)

    @override
    @torch.no_grad()
    def predict(self, inputs: Tensor) -> Tensor:
        self._module.eval()
        if not self._in_turn:
            return self._at_once(inputs, inputs_stacked=False)
        return self._one_by_one([inputs] * len(self._seeds), drawing=False)

    @override
    def at(self, *moment: int) -> None:
        self._moment, self._forwards = moment, 0

    @override
    def descend(self, loss: Tensor, lr: Tensor) -> None:
        trained = [value for value in self.parameters.values() if value.requires_grad]
        gradients = torch.autograd.grad(loss, trained, torch.ones_like(loss), allow_unused=True)
        with torch.no_grad():
            for parameter, gradient in zip(trained, gradients, strict=True):
                if gradient is not None:  # a parameter that this forward did not use
                    rates = lr.view(-1, *[1] * (parameter.ndim - 1))
                    parameter.addcmul_(gradient, rates, value=-1)

    def _at_once(self, inputs: Tensor, *, inputs_stacked: bool) -> Tensor:
        run = torch.vmap(self._call, in_dims=(0, 0 if inputs_stacked else None))
        stacked: Tensor = run({**self.parameters, **self.buffers}, inputs)
        return stacked

    def _one_by_one(self, inputs: Sequence[Tensor], *, drawing: bool) -> Tensor:
        logits = []
        for seed, state, own in zip(self._seeds, self._states(), inputs, strict=True):
            with self._random_numbers_of(seed) if drawing else nullcontext():
                logits.append(self._call(state, own))
        return logits[0].unsqueeze(0) if len(logits) == 1 else torch.stack(logits)

    @contextmanager
    def _random_numbers_of(self, seed: int) -> Iterator[None]:
        """Let what the net draws, in dropout say, depend on the trial and on time alone."""
        devices = [] if self._device.type == "cpu" else [self._device]
        with torch.random.fork_rng(devices, device_type=self._device.type):
            torch.manual_seed(torch_seed(seed, "forward", *self._moment, self._forwards))
            yield

    def _states(self) -> list[dict[str, Tensor]]:
        """The state of each trial, as views: name -> [...]."""
        stacked = {**self.parameters, **self.buffers}
        if len(self._seeds) == 1:  # not unbind, whose backward would copy every gradient
            return [{name: value.squeeze(0) for name, value in stacked.items()}]
        parts = {name: value.unbind(0) for name, value in stacked.items()}
        return [{name: p[trial] for name, p in parts.items()} for trial in range(len(self._seeds))]

    def _call(self, state: dict[str, Tensor], inputs: Tensor) -> Tensor:
        if self._channels_last and inputs.ndim == 4:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        logits: Tensor = functional_call(self._module, state, (inputs,))
        return logits


def convolves(net: nn.Module) -> bool:
    """Whether the net has convolutions."""
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
