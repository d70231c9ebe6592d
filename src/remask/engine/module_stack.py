"""Stacks of any modules, under vmap or trial by trial.

Trial by trial where that is faster (convolutions on a CPU, in the channels-last format, and single
trials) and where the net draws random numbers (dropout).
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from threading import Lock
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from typing_extensions import override

from remask.data.tasks import DataDescription
from remask.engine.linear_stack import LinearStack, linear_layers
from remask.engine.validation import require_bfloat16
from remask.errors import RemaskError
from remask.losses import trial_cross_entropy
from remask.methods import MethodError
from remask.nets.builders import NetBuilder
from remask.nets.stacked import (
    Gradients,
    LossGradients,
    SampleGradients,
    StackedNet,
    State,
    aligned,
    stacked_state,
    trial_products,
)
from remask.own_code import own_place
from remask.randomness import torch_seed
from remask.setting_types import Precision

_seeding = Lock()  # of the random state that all threads share
_LARGEST_GRADIENTS = 1 << 26  # numbers, a quarter of a GiB
_PREDICTED_AT_ONCE = 64  # images whose activations stay in the cache: twice as fast as 512
_UNRELATED_TO_VMAP = ("randomness", "not enough memory", "out of memory")
_TOO_FEW = "Expected more than 1 value per channel"  # the beginning of torch's message
_Forward = Callable[[State, Tensor], Tensor]
"""One trial's: (state, inputs [B, *shape]) -> outputs."""


class NotStackableError(RemaskError):
    """A net that runs by itself, but not for several trials or samples at once."""


class BatchTooSmallError(RemaskError):
    """A batch with too few values for batch normalisation."""


class FunctionalModule:
    """A copy of a net that is called with the state of one network at a time."""

    def __init__(
        self, net: nn.Module, device: torch.device, *, channels_last: bool, bfloat16: bool
    ) -> None:
        # It keeps its parameters, since moving them to the meta device would untie tied ones.
        self.module = copy.deepcopy(net)
        self.normalising = {
            name: module
            for name, module in self.module.named_modules()
            if isinstance(module, nn.modules.batchnorm._NormBase)
        }
        """The layers with batch statistics."""
        self.head: str | None = None
        """The linear layer that is called last, once `features` has found it."""
        self._device, self._channels_last, self._bfloat16 = device, channels_last, bfloat16
        self._mode = ""

    def enter(self, mode: Literal["training", "evaluation", "teaching"]) -> None:
        """Switch the mode; "teaching" is evaluation with the statistics of the batch."""
        if mode == self._mode:  # train() walks through all modules
            return
        self.module.train(mode == "training")
        for module in self.normalising.values() if mode == "teaching" else ():
            module.train()
        self._mode = mode

    def call(self, state: State, inputs: Tensor) -> Tensor:
        """Logits: [B, *shape] -> [B, K]."""
        if self._channels_last and inputs.ndim == 4:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        if not self._bfloat16:
            plain: Tensor = functional_call(self.module, state, (inputs,))
            return plain
        # No cache: under vmap it would keep tensors that end with the forward pass.
        with torch.autocast(self._device.type, torch.bfloat16, cache_enabled=False):
            lower: Tensor = functional_call(self.module, state, (inputs,))
        return lower.float()

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
        return features.float()


class ModuleStack(StackedNet):
    """A stack of any modules; messages call the net `name`.

    With `bfloat16`, autocast runs layers in bfloat16. Parameters, gradients and logits stay
    float32.
    """

    def __init__(
        self,
        nets: Sequence[nn.Module],
        seeds: Sequence[int],
        device: torch.device | str,
        name: str | None = None,
        *,
        bfloat16: bool = False,
    ) -> None:
        self._name = name or type(nets[0]).__name__
        self._device = torch.device(device)
        on_cpu = self._device.type == "cpu"
        if bfloat16 and on_cpu:
            require_bfloat16()
        channels_last = on_cpu and has_convolutions(nets[0]) and _safe_channels_last(nets[0])
        self._channels_last = channels_last
        self.parameters, self.buffers = stacked_state(nets, device)
        self._functional = FunctionalModule(
            nets[0], self._device, channels_last=channels_last, bfloat16=bfloat16
        )
        self.module = self._functional.module
        weights = sum(parameter.numel() for parameter in self.parameters.values())
        self.samples_at_once = max(1, _LARGEST_GRADIENTS // max(weights, 1))
        self._seeds = list(seeds)
        self._key: tuple[int, ...] = ()
        self._forwards = 0  # since the key was set
        draws = any(isinstance(m, nn.modules.dropout._DropoutNd) for m in nets[0].modules())
        self._in_turn = len(nets) == 1 or channels_last or draws
        if channels_last:
            self.parameters = {n: _with_channels_last(v) for n, v in self.parameters.items()}
        if not self._in_turn:
            _transpose_in_memory(self.parameters, nets[0])
        self.couples_samples = bool(self._functional.normalising)
        self.statistics = frozenset(
            f"{place}.{name}" if place else name
            for place, module in self._functional.normalising.items()
            for name, _ in module.named_buffers()
        )

    @override
    def __call__(self, inputs: Tensor, parameters: Mapping[str, Tensor] | None = None) -> Tensor:
        state = self.state() if parameters is None else {**parameters, **self.buffers}
        return self._train(self._functional.call, state, inputs)

    @override
    @torch.no_grad()
    def predict(self, inputs: Tensor) -> Tensor:
        self._functional.enter("evaluation")
        logits = [
            self._without_draws(self._functional.call, self.state(), chunk, shared=True)
            for chunk in (
                torch.split(inputs, _PREDICTED_AT_ONCE) if self._channels_last else [inputs]
            )
        ]
        return torch.cat(logits, dim=1)

    @override
    @torch.no_grad()
    def evaluate(self, inputs: Tensor, state: State | None = None) -> Tensor:
        self._functional.enter("evaluation")
        own = self.state() if state is None else state
        return self._without_draws(self._functional.call, own, inputs)

    @override
    @torch.no_grad()
    def teach(self, inputs: Tensor, state: State) -> Tensor:
        self._functional.enter("teaching")
        return self._without_draws(self._functional.call, state, inputs)

    @override
    def features(self, inputs: Tensor, *, training: bool) -> Tensor:
        if training:
            return self._train(self._functional.features, self.state(), inputs)
        self._functional.enter("evaluation")
        with torch.no_grad():
            return self._without_draws(self._functional.features, self.state(), inputs)

    @override
    def head(self, features: Tensor) -> Tensor:
        weight = self.parameters[f"{self._functional.head}.weight"]
        logits = trial_products(features, weight.transpose(1, 2))
        bias = self.parameters.get(f"{self._functional.head}.bias")
        return logits if bias is None else logits + bias.unsqueeze(1)

    @override
    def name_draws(self, *key: int) -> None:
        self._key, self._forwards = key, 0

    @override
    def batch_gradients(
        self, inputs: Tensor, labels: Tensor, sizes: Sequence[int]
    ) -> list[LossGradients]:
        parts = (torch.split(whole, list(sizes), dim=1) for whole in (inputs, labels))
        losses = (trial_cross_entropy(self(x), y, None, None) for x, y in zip(*parts, strict=True))
        return [self.gradients(loss) for loss in losses]

    @override
    def sample_gradients(self, inputs: Tensor, labels: Tensor) -> SampleGradients:
        self._functional.enter("evaluation")
        trained = [n for n, value in self.parameters.items() if value.requires_grad]

        def loss(own: State, rest: State, x: Tensor, y: Tensor) -> Tensor:
            # functional_call, since vmap does not support channels last.
            logits = functional_call(self.module, {**own, **rest}, (x.unsqueeze(0),))
            return F.cross_entropy(logits, y.unsqueeze(0))

        each = torch.vmap(torch.func.grad(loss), in_dims=(None, None, 0, 0))
        trials = []
        for state, own, truth in zip(self._states(self.state()), inputs, labels, strict=True):
            detached = {name: value.detach() for name, value in state.items()}
            ours = {name: detached.pop(name) for name in trained}
            with self._vectorised(
                partial(self._functional.call, state, own[:1]),
                "sample by sample, which this method needs for the gradients of single samples",
                "use another net or method",
            ):
                trials.append(each(ours, detached, own, truth))
        return PlainGradients({n: torch.stack([trial[n] for trial in trials]) for n in trained})

    def _train(self, call: _Forward, state: State, inputs: Tensor) -> Tensor:
        self._functional.enter("training")
        self._forwards += 1
        try:
            if not self._in_turn:
                try:
                    return self._at_once(call, state, inputs)
                except RuntimeError as error:
                    if "randomness" not in str(error):
                        raise
                    self._stop_vmap()  # it calls F.dropout or the like, which no module shows
            return self._one_by_one(call, state, list(inputs), drawing=True)
        except ValueError as error:
            if _TOO_FEW not in str(error):
                raise
            raise BatchTooSmallError(
                f"the net {self._name!r} normalises over its batch, and a batch of "
                f"{inputs.shape[1]} is too small for inputs of this size: choose a batch size that "
                f"leaves at least 2 samples in the last batch, or a net without batch normalisation"
            ) from error

    def _stop_vmap(self) -> None:
        """Run trial by trial from now on, and undo the memory layout for vmap."""
        self._in_turn = True
        for parameter in self.parameters.values():
            parameter.data = parameter.data.contiguous()

    def _without_draws(
        self, call: _Forward, state: State, inputs: Tensor, *, shared: bool = False
    ) -> Tensor:
        if not self._in_turn:
            return self._at_once(call, state, inputs, shared=shared)
        own = [inputs] * len(self._seeds) if shared else list(inputs)
        return self._one_by_one(call, state, own, drawing=False)

    def _at_once(
        self, call: _Forward, state: State, inputs: Tensor, *, shared: bool = False
    ) -> Tensor:
        run = torch.vmap(call, in_dims=(0, None if shared else 0))
        with self._vectorised(
            lambda: call(self._states(state)[0], inputs if shared else inputs[0]),
            "stacked with other trials",
            "run one trial at a time (a stack of 1)",
        ):
            stacked: Tensor = run(state, inputs)
        return stacked

    @contextmanager
    def _vectorised(self, alone: Callable[[], object], how: str, advice: str) -> Iterator[None]:
        """Raise NotStackableError if the net fails only under vmap."""
        try:
            yield
        except Exception as error:
            if any(cause in str(error) for cause in _UNRELATED_TO_VMAP):
                raise
            alone()  # raises the net's own error, if it also fails without vmap
            raise NotStackableError(
                f"the net {self._name!r} runs alone but not {how}{own_place(error)}: {advice}, or "
                "rewrite what depends on values, such as `if x.sum() > 0` or `.item()`"
            ) from error

    def _one_by_one(
        self, call: _Forward, state: State, inputs: Sequence[Tensor], *, drawing: bool
    ) -> Tensor:
        outputs = []
        for seed, own_state, own in zip(self._seeds, self._states(state), inputs, strict=True):
            with self._random_numbers_of(seed) if drawing else nullcontext():
                outputs.append(call(own_state, aligned(own)))
        return outputs[0].unsqueeze(0) if len(outputs) == 1 else torch.stack(outputs)

    @contextmanager
    def _random_numbers_of(self, seed: int) -> Iterator[None]:
        """Seed torch by the trial, the position and the forward pass."""
        devices = [] if self._device.type == "cpu" else [self._device]
        with torch.random.fork_rng(devices, device_type=self._device.type):
            torch.manual_seed(torch_seed(seed, "forward", *self._key, self._forwards))
            yield

    def _states(self, stacked: State) -> list[State]:
        """The state of each trial: name -> [...]; copies only of what is not aligned."""
        if len(self._seeds) == 1:  # the backward of unbind would copy every gradient
            return [{name: value.squeeze(0) for name, value in stacked.items()}]
        parts = {name: value.unbind(0) for name, value in stacked.items()}
        return [
            {  # buffers are changed in place, so they must not be copies
                name: aligned(own[trial]) if name in self.parameters else own[trial]
                for name, own in parts.items()
            }
            for trial in range(len(self._seeds))
        ]


class PlainGradients(SampleGradients):
    """Gradients of single samples by name, each [S, n, ...]."""

    def __init__(self, gradients: Gradients) -> None:
        self._gradients = gradients

    @override
    def inner(self, other: SampleGradients) -> Tensor:
        assert isinstance(other, PlainGradients)  # of the same stack
        products = [
            trial_products(own.flatten(2), other._gradients[name].flatten(2).mT)
            for name, own in self._gradients.items()
        ]
        return torch.stack(products).sum(0)

    @override
    def squares(self, weights: Tensor) -> Gradients:
        return {
            name: torch.einsum("sn...,sn->s...", own.square(), weights)
            for name, own in self._gradients.items()
        }


def has_convolutions(net: nn.Module) -> bool:
    """Whether the net has 2D convolutions."""
    return any(isinstance(module, nn.Conv2d) for module in net.modules())


def _safe_channels_last(net: nn.Module) -> bool:
    """Whether oneDNN can train the net in the channels-last format.

    It writes past its own memory if a 1x1 convolution with a stride has fewer input channels
    than one of its blocks, which are 8 or 16 (https://github.com/uxlfoundation/oneDNN/issues/6035).
    """
    return not any(
        set(module.kernel_size) == {1} and set(module.stride) != {1} and module.in_channels < 16
        for module in net.modules()
        if isinstance(module, nn.Conv2d)
    )


def _with_channels_last(stacked: Tensor) -> Tensor:
    """Kernels [S, out, in, h, w] in the channels-last format; other tensors unchanged."""
    if stacked.ndim != 5:
        return stacked
    # contiguous() of a permuted tensor would leave a 1x1 kernel as it is.
    memory = torch.empty_like(stacked.movedim(2, -1), memory_format=torch.contiguous_format)
    copied = memory.movedim(-1, 2).copy_(stacked.detach())
    return copied.requires_grad_(stacked.requires_grad)


def _transpose_in_memory(parameters: dict[str, Tensor], net: nn.Module) -> None:
    """Store the weights [S, out, in] of linear layers as [S, in, out].

    Their gradients under vmap are stored like that, and a step along a gradient in another layout
    takes seven times as long.
    """
    for place, layer in net.named_modules():
        name = f"{place}.weight" if place else "weight"
        if type(layer) is nn.Linear and name in parameters:  # tied weights have one name only
            weight = parameters[name]
            transposed = weight.detach().mT.contiguous().mT
            parameters[name] = transposed.requires_grad_(weight.requires_grad)


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
    layers = linear_layers(nets[0])
    if layers is not None and precision == "float32":
        return LinearStack(nets, layers, device)
    seeds = range(len(nets)) if seeds is None else seeds
    return ModuleStack(nets, seeds, device, name, bfloat16=precision == "bf16")


def initial_net(build: NetBuilder, data: DataDescription, seed: int) -> nn.Module:
    """A net with initial weights that depend only on the seed."""
    with _seeding, torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(seed, "init"))
        return build(data.input_shape, data.num_classes)


def preferred_stack(net: nn.Module, device: torch.device | str = "cpu") -> int:
    """The recommended number of trials per stack.

    Small matrix products leave a machine idle unless they are stacked. A convolution fills a CPU by
    itself, and stacking would only use more memory.
    """
    return 1 if has_convolutions(net) and torch.device(device).type == "cpu" else 10
