"""What is checked: a method, and the short run of three trials that it is checked with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from remask.benchmarks import Benchmark
from remask.config import COMMON_WEIGHTS, TrialConfig
from remask.engine import Position, TrialStack
from remask.methods import Method
from remask.nets import NetBuilder

Outcome = Literal["passed", "failed", "not checked"]

_STEPS_A_TASK = 6
_BUFFER, _REPLAY_BATCH = 20, 4
_LEARNING_RATES = (0.1, 0.05, 0.02)


@dataclass(frozen=True)
class Finding:
    """What one check has found."""

    check: str
    outcome: Outcome
    text: str
    """What holds; or what is wrong, and what to do; or why it was not checked."""


@dataclass(frozen=True, eq=False)
class Moment:
    """A stack at some point of its run."""

    position: Position
    state: dict[str, Tensor]
    scores: Tensor | None
    """Of the first task, where a task has just ended."""


@dataclass(frozen=True, eq=False)
class Run:
    """A whole run: its end, and some moments on the way."""

    moments: list[Moment]
    end: dict[str, Tensor]
    finished: TrialStack


@dataclass(frozen=True, eq=False)
class Subject:
    """A method with the benchmark and the net to check it on."""

    method: type[Method]
    benchmark: Benchmark
    build: NetBuilder | None
    """None: the one that the configs name."""
    configs: Sequence[TrialConfig]
    by_name: bool
    """Whether the configs' name leads to the method."""

    def stack(
        self,
        configs: Sequence[TrialConfig] | None = None,
        *,
        build: NetBuilder | None = None,
        device: str = "cpu",
    ) -> TrialStack:
        """A new stack, of all trials unless told otherwise."""
        chosen = self.configs if configs is None else configs
        return TrialStack(
            chosen,
            self.benchmark,
            method=None if self.by_name else self.method,
            build_net=build or self.build,
            device=device,
        )

    @cached_property
    def run(self) -> Run:
        """The run that the others are held against."""
        return run(self.stack(), self.test_inputs)

    @property
    def test_inputs(self) -> Tensor:
        """Some inputs to predict."""
        return self.benchmark.test_inputs[:50] * self.benchmark.scale

    @property
    def late(self) -> Moment:
        """A moment in the last task, within an epoch: all that a step can be is there."""
        return [moment for moment in self.run.moments if moment.position.step][-1]


def short_configs(
    name: str, method: type[Method], benchmark: Benchmark, net: str, weights: Mapping[str, float]
) -> list[TrialConfig]:
    """Three trials that differ in seed, learning rate and, where it can wear one, mask."""
    smallest = min(len(benchmark.train_indices(task)) for task in range(benchmark.num_tasks))
    least = method.least_buffer(benchmark.num_tasks, benchmark.num_classes)
    chosen = {**method.weights, **weights}
    common = {weight: chosen.pop(weight) for weight in COMMON_WEIGHTS if weight in chosen}
    masks = (None, None, None) if method.unmaskable else (None, -1.0, float("-inf"))
    return [
        TrialConfig(
            benchmark=benchmark.name,
            method=name,
            net=net,
            mask=mask,
            seed=seed,
            lr=lr,
            batch=max(2, smallest // _STEPS_A_TASK),
            buffer=max(_BUFFER, least) if method.uses_buffer() else 0,
            replay_batch=_REPLAY_BATCH if method.uses_replay_batch() else 0,
            epochs=1,
            weights=tuple(sorted(chosen.items())),
            **common,
            **dict(benchmark.asked),
        )
        for seed, (mask, lr) in enumerate(zip(masks, _LEARNING_RATES, strict=True))
    ]


def run(stack: TrialStack, inputs: Tensor) -> Run:
    """Run a stack to its end, keeping moments in the first task, at its end, and in the last."""
    early, late = stack.total_steps // (3 * len(stack.tasks)), max(1, stack.total_steps - 2)
    moments: list[Moment] = []
    learnt = 0
    for position in stack.run():
        ended, learnt = position.task > learnt, position.task
        is_first_end = ended and learnt == 1
        if is_first_end or (not ended and stack.steps_done in (early, late)):
            scores = stack.scores(inputs, 0) if is_first_end else None
            moments.append(Moment(position, copied(stack.state()), scores))
    return Run(moments, copied(stack.state()), stack)


def copied(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors as they are now."""
    return {name: tensor.detach().clone() for name, tensor in state.items()}


def of_trials(state: Mapping[str, Tensor], trials: int, chosen: slice) -> dict[str, Tensor]:
    """The part of some trials of a state; the reservoirs lie behind one another, [S * M, ...]."""
    return {
        name: (
            tensor.view(trials, -1, *tensor.shape[1:]) if name.startswith("memory/") else tensor
        )[chosen]
        for name, tensor in state.items()
    }


def different(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> list[str]:
    """The names of tensors that differ in a bit."""
    return [name for name in one if not same_bits(one[name], other[name])]


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are equal to the last bit; a NaN equals itself."""
    return one.shape == other.shape and torch.equal(_bytes(one), _bytes(other))


def same_value(one: object, other: object) -> bool:
    """Whether two attributes of a method say the same, as far as can be told."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return same_bits(one, other)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same_value(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same_value, one, other))
    return repr(one) == repr(other) or " at 0x" in repr(one)  # an address tells nothing


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
