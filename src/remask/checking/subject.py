"""A method in short runs, and the states that they end in."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from pydantic import ValidationError
from torch import Tensor

from remask.config import COMMON_WEIGHTS, TrialConfig
from remask.data.benchmark import Benchmark, load_benchmark, resplit
from remask.engine import Position, TrialStack
from remask.errors import MethodError, describe_errors
from remask.methods import Method, find_method
from remask.nets.builders import NetBuilder

_SAMPLES_PER_CLASS = 12
_STEPS_PER_TASK = 6
_BUFFER, _REPLAY_BATCH = 20, 4
_LEARNING_RATES = (0.1, 0.05, 0.02)

State = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Moment:
    """A stack at some point of its run."""

    position: Position
    state: State
    scores: Tensor | None
    """Scores of the first task, at the end of a task only."""


class Subject:
    """A method with the benchmark and the net to check it on."""

    def __init__(
        self,
        method: type[Method] | str,
        net: NetBuilder | str,
        benchmark: Benchmark | str,
        weights: Mapping[str, float],
    ) -> None:
        self.given, self.weights = method, weights
        self.method = find_method(method) if isinstance(method, str) else method
        self._build = None if isinstance(net, str) else net
        if isinstance(benchmark, str):
            tasks = 3 if benchmark == "split-digits" else None
            self.benchmark = load_benchmark(benchmark, tasks=tasks, limit=_SAMPLES_PER_CLASS)
        else:
            self.benchmark = resplit(benchmark, limit=_SAMPLES_PER_CLASS)
        self.inputs = self.benchmark.test_inputs[:50] * self.benchmark.scale
        name = method if isinstance(method, str) else method.name or method.__name__
        net_name = net if isinstance(net, str) else "own-net"
        try:
            self.configs = list(self._short_configs(name, net_name))
        except ValidationError as error:
            raise MethodError(describe_errors(error)) from None

    def _short_configs(self, name: str, net: str) -> Iterator[TrialConfig]:
        """Three trials that differ in seed, learning rate and, where supported, mask."""
        method, data = self.method, self.benchmark
        if unknown := sorted(set(self.weights) - set(method.weights)):
            known = [*method.weights]
            raise MethodError(f"{method.title} has no weight {unknown[0]!r}; it has {known}")
        smallest = min(len(data.train_indices(task)) for task in range(data.num_tasks))
        least = method.least_buffer(data.num_tasks, data.num_classes)
        chosen = {**method.weights, **self.weights}
        common = {weight: chosen.pop(weight) for weight in COMMON_WEIGHTS if weight in chosen}
        masks = (None, None, None) if method.unmaskable else (None, -1.0, float("-inf"))
        for seed, (mask, lr) in enumerate(zip(masks, _LEARNING_RATES, strict=True)):
            yield TrialConfig(
                benchmark=data.name,
                method=name,
                net=net,
                mask=mask,
                seed=seed,
                lr=lr,
                batch=max(2, smallest // _STEPS_PER_TASK),
                buffer=max(_BUFFER, least) if method.uses_buffer() else 0,
                replay_batch=_REPLAY_BATCH if method.uses_replay_batch() else 0,
                epochs=1,
                weights=tuple(sorted(chosen.items())),
                **common,
                **dict(data.asked),
            )

    def stack(
        self,
        configs: list[TrialConfig] | None = None,
        *,
        build: NetBuilder | None = None,
        device: str = "cpu",
    ) -> TrialStack:
        """A new stack, by default of all trials with the given net."""
        return TrialStack(
            self.configs if configs is None else configs,
            self.benchmark,
            method=None if isinstance(self.given, str) else self.given,
            build_net=build or self._build,
            device=device,
        )

    def end(self, configs: list[TrialConfig] | None = None) -> State:
        """The state after a whole run."""
        return finished(self.stack(configs))

    @cached_property
    def run(self) -> tuple[TrialStack, list[Moment]]:
        """A finished stack, with moments in the first task, at its end, and in the last task."""
        stack, moments, learnt = self.stack(), list[Moment](), 0
        early, late = stack.total_steps // (3 * len(stack.tasks)), max(1, stack.total_steps - 2)
        for position in stack.run():
            ended, learnt = position.task > learnt, position.task
            first = ended and learnt == 1
            if first or (not ended and stack.steps_done in (early, late)):
                scores = stack.scores(self.inputs, 0) if first else None
                moments.append(Moment(position, copied(stack), scores))
        return stack, moments

    @cached_property
    def expected(self) -> State:
        """The state at the end of the run that others are compared with."""
        return copied(self.run[0])

    def restore_late(self, stack: TrialStack) -> None:
        """Bring a stack to a moment within an epoch of the last task."""
        moment = [moment for moment in self.run[1] if moment.position.step][-1]
        stack.restore(moment.state, moment.position)


def finished(stack: TrialStack) -> State:
    """Run a stack to its end, and return its state."""
    for _ in stack.run():
        pass
    return copied(stack)


def copied(stack: TrialStack) -> State:
    """A copy of the state of a stack."""
    return {name: tensor.detach().clone() for name, tensor in stack.state().items()}


def of_trials(state: State, trials: int, chosen: slice) -> State:
    """The part of some trials of a state; memories are [S * M, ...], other tensors [S, ...]."""
    samples = {n: t for n, t in state.items() if n.startswith("memory/")}
    by_trial = {n: t.view(trials, -1, *t.shape[1:]) for n, t in samples.items()}
    return {name: tensor[chosen] for name, tensor in {**state, **by_trial}.items()}


def different(one: State, other: State) -> list[str]:
    """The names of tensors that differ in any bit."""
    return [name for name in one if not same_bits(one[name], other[name])]


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are equal to the last bit, including NaN."""
    values = [tensor.detach().cpu().numpy() for tensor in (one, other)]
    return one.shape == other.shape and values[0].tobytes() == values[1].tobytes()


def same_value(one: object, other: object) -> bool:
    """Whether two attributes of a method are equal, as far as that can be determined."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return same_bits(one, other)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same_value(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same_value, one, other))
    return repr(one) == repr(other) or " at 0x" in repr(one)  # an address means nothing


def close(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are equal up to rounding."""
    if not one.is_floating_point():
        return torch.equal(one, other)
    return torch.allclose(one, other, rtol=1e-3, atol=1e-4, equal_nan=True)


def some(names: list[str]) -> str:
    """The first three names, and the number of the others."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
