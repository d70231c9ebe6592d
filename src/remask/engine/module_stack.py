"""Stacks of any modules: torch.func's functional_call, under vmap or trial after trial.

Trial after trial where that is faster (convolutions on a CPU, which run with channels last), where
there is one trial only, and where the net draws random numbers (dropout).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from typing_extensions import override

from remask.engine.bfloat16 import require_bfloat16
from remask.engine.channels_last import convolves, safe_with_channels_last, with_channels_last
from remask.engine.lent_module import LentModule
from remask.engine.plain_gradients import PlainGradients
from remask.engine.transposed import transpose_in_memory
from remask.errors import RemaskError
from remask.losses import trial_cross_entropy
from remask.nets import FormedGradients, LossGradients, StackedNet, State, stacked_state
from remask.own_code import own_place
from remask.randomness import torch_seed

_LARGEST_GRADIENTS = 1 << 26  # numbers, a quarter of a GiB
_NOT_OF_THE_NET = ("randomness", "not enough memory", "out of memory")
_TOO_FEW = "Expected more than 1 value per channel"  # so torch begins to say it
_Forward = Callable[[State, Tensor], Tensor]
"""One trial's: (state, inputs [B, *shape]) -> outputs."""


class NotStackableError(RemaskError):
    """A net that runs by itself, but not for many trials or samples at once."""


class BatchTooSmallError(RemaskError):
    """A net that normalises over its batch, and a batch that has too little to normalise over."""


class ModuleStack(StackedNet):
    """A stack of any modules; `name` is what messages call the net.

    With `bfloat16` autocast computes the layers that gain from it in bfloat16. Parameters, their
    gradients and what the net returns stay float32.
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
        self._channels_last = on_cpu and convolves(nets[0]) and safe_with_channels_last(nets[0])
        self.parameters, self.buffers = stacked_state(nets, device)
        if self._channels_last:
            self.parameters = {n: with_channels_last(v) for n, v in self.parameters.items()}
        self._lent = LentModule(
            nets[0], self._device, channels_last=self._channels_last, bfloat16=bfloat16
        )
        self.module = self._lent.module
        weights = sum(parameter.numel() for parameter in self.parameters.values())
        self.samples_at_once = max(1, _LARGEST_GRADIENTS // max(weights, 1))
        self._seeds = list(seeds)
        self._key: tuple[int, ...] = ()
        self._forwards = 0  # since it was set
        modules = list(nets[0].modules())
        draws = any(isinstance(module, nn.modules.dropout._DropoutNd) for module in modules)
        # Trial after trial: the plain module, at its own speed, with random numbers of its own.
        self._in_turn = len(nets) == 1 or self._channels_last or draws
        if not self._in_turn:
            transpose_in_memory(self.parameters, nets[0])
        self.couples_samples = bool(self._lent.normalising)
        self.statistics = frozenset(
            f"{place}.{name}" if place else name
            for place, module in self._lent.normalising
            for name, _ in module.named_buffers()
        )

    @override
    def __call__(self, inputs: Tensor, parameters: Mapping[str, Tensor] | None = None) -> Tensor:
        state = self.state() if parameters is None else {**parameters, **self.buffers}
        return self._train(self._lent.call, state, inputs)

    @override
    @torch.no_grad()
    def predict(self, inputs: Tensor) -> Tensor:
        return self._test(self._lent.call, self.state(), inputs, shared=True)

    @override
    @torch.no_grad()
    def evaluate(self, inputs: Tensor, state: State | None = None) -> Tensor:
        return self._test(self._lent.call, self.state() if state is None else state, inputs)

    @override
    @torch.no_grad()
    def teach(self, inputs: Tensor, state: State) -> Tensor:
        self._lent.enter("teaching")
        return self._without_draws(self._lent.call, state, inputs)

    @override
    def features(self, inputs: Tensor, *, training: bool) -> Tensor:
        if training:
            return self._train(self._lent.features, self.state(), inputs)
        with torch.no_grad():
            return self._test(self._lent.features, self.state(), inputs)

    @override
    def head(self, features: Tensor) -> Tensor:
        weight = self.parameters[f"{self._lent.head}.weight"]
        logits = torch.bmm(features, weight.transpose(1, 2))
        bias = self.parameters.get(f"{self._lent.head}.bias")
        return logits if bias is None else logits + bias.unsqueeze(1)

    @override
    def name_draws(self, *key: int) -> None:
        self._key, self._forwards = key, 0

    @override
    def gradients(self, loss: Tensor) -> FormedGradients:
        trained = {n: value for n, value in self.parameters.items() if value.requires_grad}
        gradients: tuple[Tensor | None, ...] = torch.autograd.grad(
            loss, list(trained.values()), torch.ones_like(loss), allow_unused=True
        )
        named = zip(trained, gradients, strict=True)
        return FormedGradients({n: g for n, g in named if g is not None})

    @override
    def batch_gradients(
        self, inputs: Tensor, labels: Tensor, sizes: Sequence[int]
    ) -> list[LossGradients]:
        parts = (torch.split(whole, list(sizes), dim=1) for whole in (inputs, labels))
        losses = (trial_cross_entropy(self(x), y, None, None) for x, y in zip(*parts, strict=True))
        return [self.gradients(loss) for loss in losses]

    @override
    def sample_gradients(self, inputs: Tensor, labels: Tensor) -> PlainGradients:
        self._lent.enter("evaluation")
        trained = {n for n, value in self.parameters.items() if value.requires_grad}

        def loss(own: dict[str, Tensor], rest: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            # Not _call: vmap knows no channels last.
            logits = functional_call(self.module, {**own, **rest}, (x.unsqueeze(0),))
            return F.cross_entropy(logits, y.unsqueeze(0))

        each = torch.vmap(torch.func.grad(loss), in_dims=(None, None, 0, 0))
        trials = []
        for state, own, truth in zip(self._states(self.state()), inputs, labels, strict=True):
            detached = {name: value.detach() for name, value in state.items()}
            ours = {name: detached.pop(name) for name in trained}
            with self._vectorised(
                partial(self._lent.call, state, own[:1]),
                "sample by sample, as this method needs it for the gradients of single samples",
                "take another net or method",
            ):
                trials.append(each(ours, detached, own, truth))
        return PlainGradients({n: torch.stack([trial[n] for trial in trials]) for n in trained})

    def _train(self, call: _Forward, state: State, inputs: Tensor) -> Tensor:
        self._lent.enter("training")
        self._forwards += 1
        with self._enough_samples(inputs.shape[1]):
            if not self._in_turn:
                try:
                    return self._at_once(call, state, inputs)
                except RuntimeError as error:
                    if "randomness" not in str(error):
                        raise
                    self._take_turns()  # it draws in a way that no module of it tells: F.dropout
            return self._one_by_one(call, state, list(inputs), drawing=True)

    def _take_turns(self) -> None:
        """Do without vmap from now on, and without what only vmap is faster with."""
        self._in_turn = True
        for parameter in self.parameters.values():
            parameter.data = parameter.data.contiguous()

    @contextmanager
    def _enough_samples(self, batch: int) -> Iterator[None]:
        """Say in plain words that there is nothing to normalise over."""
        try:
            yield
        except ValueError as error:
            if _TOO_FEW not in str(error):
                raise
            raise BatchTooSmallError(
                f"the net {self._name!r} normalises over its batch, and cannot learn from a batch "
                f"of {batch} where inputs are so small: take a larger one, --batch, such that a "
                f"last, smaller batch has two samples or more, or a net without batch normalisation"
            ) from error

    def _test(
        self, call: _Forward, state: State, inputs: Tensor, *, shared: bool = False
    ) -> Tensor:
        self._lent.enter("evaluation")
        return self._without_draws(call, state, inputs, shared=shared)

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
            "run it with --stack 1 (in Python, a TrialStack of one trial)",
        ):
            stacked: Tensor = run(state, inputs)
        return stacked

    @contextmanager
    def _vectorised(self, alone: Callable[[], object], how: str, advice: str) -> Iterator[None]:
        """Tell a net that fails under vmap only from one that also fails alone."""
        try:
            yield
        except Exception as error:
            if any(cause in str(error) for cause in _NOT_OF_THE_NET):
                raise
            alone()  # what is wrong without vmap too is raised here, in plain words
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
                outputs.append(call(own_state, own))
        return outputs[0].unsqueeze(0) if len(outputs) == 1 else torch.stack(outputs)

    @contextmanager
    def _random_numbers_of(self, seed: int) -> Iterator[None]:
        """Let what the net draws, in dropout say, depend on the trial and on time alone."""
        devices = [] if self._device.type == "cpu" else [self._device]
        with torch.random.fork_rng(devices, device_type=self._device.type):
            torch.manual_seed(torch_seed(seed, "forward", *self._key, self._forwards))
            yield

    def _states(self, stacked: State) -> list[State]:
        """The state of each trial, as views: name -> [...]."""
        if len(self._seeds) == 1:  # not unbind, whose backward would copy every gradient
            return [{name: value.squeeze(0) for name, value in stacked.items()}]
        parts = {name: value.unbind(0) for name, value in stacked.items()}
        return [{name: p[trial] for name, p in parts.items()} for trial in range(len(self._seeds))]
