"""Stacks of any modules, under vmap or trial by trial.

Trial by trial where that is faster (convolutions on a CPU, in the channels-last format, and single
trials), where the net draws random numbers (dropout), and where vmap does not support it.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from typing_extensions import override

from remask.engine.validation import require_bfloat16
from remask.errors import RemaskError
from remask.losses import trial_cross_entropy
from remask.machine import lacks_memory
from remask.methods import MethodError
from remask.nets.builders import has_convolutions
from remask.nets.stacked import (
    LossGradients,
    PlainGradients,
    SampleGradients,
    StackedNet,
    State,
    aligned,
    stacked_state,
    trial_products,
)
from remask.own_code import own_place
from remask.randomness import torch_seed

_LARGEST_GRADIENTS = 1 << 26  # numbers, a quarter of a GiB
_PREDICTED_AT_ONCE = 64  # images whose activations stay in the cache: twice as fast as 512
_TOO_FEW = "Expected more than 1 value per channel"  # the beginning of torch's message
_Mode = Literal["training", "evaluation", "teaching"]
"""Teaching is evaluation with the statistics of the batch."""
_Forward = Callable[[State, Tensor], Tensor]
"""One trial's: (state, inputs [B, *shape]) -> outputs."""


class BatchTooSmallError(RemaskError):
    """A batch with too few values for batch normalisation."""


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
        net = nets[0]
        self._name = name or type(net).__name__
        self._device, self._seeds, self._bfloat16 = torch.device(device), list(seeds), bfloat16
        on_cpu = self._device.type == "cpu"
        if bfloat16 and on_cpu:
            require_bfloat16()
        self._channels_last = on_cpu and has_convolutions(net) and _safe_channels_last(net)
        self.parameters, self.buffers = stacked_state(nets, device)
        # It keeps its parameters, since moving them to the meta device would untie tied ones.
        self.module = copy.deepcopy(net)
        norms = nn.modules.batchnorm._NormBase
        parts = dict(self.module.named_modules())
        normalising = {place: part for place, part in parts.items() if isinstance(part, norms)}
        self._normalising = list(normalising.values())
        self.couples_samples = bool(normalising)
        self.statistics = frozenset(
            f"{place}.{name}" if place else name
            for place, part in normalising.items()
            for name, _ in part.named_buffers()
        )
        weights = sum(parameter.numel() for parameter in self.parameters.values())
        self.samples_at_once = max(1, _LARGEST_GRADIENTS // max(weights, 1))
        self._mode = ""
        self._head = ""  # the linear layer that is called last, once `features` has found it
        self._key: tuple[int, ...] = ()
        self._forwards = 0  # since the key was set
        draws = any(isinstance(part, nn.modules.dropout._DropoutNd) for part in parts.values())
        self._in_turn = len(nets) == 1 or self._channels_last or draws
        self._vmapped: set[str] = set()  # the modes in which vmap is known to work
        if self._channels_last:
            self.parameters = {n: _with_channels_last(v) for n, v in self.parameters.items()}
        if not self._in_turn:
            _transpose_in_memory(self.parameters, net)

    @override
    def __call__(self, inputs: Tensor, parameters: Mapping[str, Tensor] | None = None) -> Tensor:
        state = self.state() if parameters is None else {**parameters, **self.buffers}
        return self._run("training", self._logits, state, inputs)

    @override
    @torch.no_grad()
    def predict(self, inputs: Tensor) -> Tensor:
        at_once = _PREDICTED_AT_ONCE if self._channels_last else len(inputs)
        state = self.state()
        logits = [
            self._run("evaluation", self._logits, state, own, shared=True)
            for own in torch.split(inputs, at_once)
        ]
        return torch.cat(logits, dim=1)

    @override
    @torch.no_grad()
    def evaluate(self, inputs: Tensor, state: State | None = None) -> Tensor:
        own = self.state() if state is None else state
        return self._run("evaluation", self._logits, own, inputs)

    @override
    @torch.no_grad()
    def teach(self, inputs: Tensor, state: State) -> Tensor:
        return self._run("teaching", self._logits, state, inputs)

    @override
    def features(self, inputs: Tensor, *, training: bool) -> Tensor:
        with torch.set_grad_enabled(training and torch.is_grad_enabled()):
            mode: _Mode = "training" if training else "evaluation"
            return self._run(mode, self._features, self.state(), inputs)

    @override
    def head(self, features: Tensor) -> Tensor:
        weight = self.parameters[f"{self._head}.weight"]
        logits = trial_products(features, weight.transpose(1, 2))
        bias = self.parameters.get(f"{self._head}.bias")
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
        self._enter("evaluation")
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
            try:
                trials.append(each(ours, detached, own, truth))
            except Exception as error:
                if lacks_memory(error):
                    raise
                raise MethodError(
                    f"this method needs gradients of single samples, which torch.vmap cannot "
                    f"compute for the net {self._name!r}{own_place(error)}: use another net or "
                    f"method, or rewrite what depends on values, such as `if x.sum() > 0`"
                ) from error
        return PlainGradients({n: torch.stack([trial[n] for trial in trials]) for n in trained})

    def _run(
        self, mode: _Mode, call: _Forward, state: State, inputs: Tensor, *, shared: bool = False
    ) -> Tensor:
        """Call the nets with inputs [S, B, *shape], or [B, *shape] that they share."""
        self._enter(mode)
        self._forwards += mode == "training"
        try:
            if not self._in_turn:
                found = self._at_once(call, state, inputs, shared=shared)
                if found is not None:
                    return found
            outputs = []
            each = [inputs] * len(self._seeds) if shared else list(inputs)
            for seed, own_state, own in zip(self._seeds, self._states(state), each, strict=True):
                with self._random_numbers_of(seed) if mode == "training" else nullcontext():
                    outputs.append(call(own_state, aligned(own)))
        except ValueError as error:
            if _TOO_FEW not in str(error):
                raise
            raise BatchTooSmallError(
                f"the net {self._name!r} normalises over its batch, and a batch of "
                f"{inputs.shape[1]} is too small for inputs of this size: choose a batch size that "
                f"leaves at least 2 samples in the last batch, or a net without batch normalisation"
            ) from error
        return outputs[0].unsqueeze(0) if len(outputs) == 1 else torch.stack(outputs)

    def _at_once(
        self, call: _Forward, state: State, inputs: Tensor, *, shared: bool
    ) -> Tensor | None:
        """Call all nets under vmap; None if it does not support them, now and from now on."""
        run = torch.vmap(call, in_dims=(0, None if shared else 0))
        if self._mode in self._vmapped:
            return run(state, inputs)
        before = {name: value.clone() for name, value in state.items() if name in self.buffers}
        try:
            found: Tensor = run(state, inputs)
        except Exception as error:
            if lacks_memory(error):
                raise
            # Perhaps it calls F.dropout or depends on values. If it fails alone, too, that raises.
            self._in_turn = True
            for name, value in before.items():
                state[name].copy_(value)
            for parameter in self.parameters.values():
                parameter.data = parameter.data.contiguous()  # undo the layout for vmap
            return None
        self._vmapped.add(self._mode)
        return found

    def _enter(self, mode: _Mode) -> None:
        if mode == self._mode:  # train() walks through all modules
            return
        self.module.train(mode == "training")
        for part in self._normalising if mode == "teaching" else ():
            part.train()
        self._mode = mode

    def _logits(self, state: State, inputs: Tensor) -> Tensor:
        """One trial's logits: [B, *shape] -> [B, K]."""
        if self._channels_last and inputs.ndim == 4:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        if not self._bfloat16:
            plain: Tensor = functional_call(self.module, state, (inputs,))
            return plain
        # No cache: under vmap it would keep tensors that end with the forward pass.
        with torch.autocast(self._device.type, torch.bfloat16, cache_enabled=False):
            lower: Tensor = functional_call(self.module, state, (inputs,))
        return lower.float()

    def _features(self, state: State, inputs: Tensor) -> Tensor:
        """One trial's inputs of the last linear layer, [B, *shape] -> [B, F]; finds that layer."""
        caught: list[tuple[str, Tensor]] = []
        hooks = [
            layer.register_forward_pre_hook(
                lambda _, given, name=name: caught.append((name, given[0]))
            )
            for name, layer in self.module.named_modules()
            if isinstance(layer, nn.Linear)
        ]
        try:
            self._logits(state, inputs)
        finally:
            for hook in hooks:
                hook.remove()
        if not caught:
            raise MethodError("a method that uses features needs a net with a linear last layer")
        self._head, features = caught[-1]
        return features.float()

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
