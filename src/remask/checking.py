"""Checks of a custom method in short runs, for defects that a long run would hide."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from remask.config import COMMON_WEIGHTS, TrialConfig
from remask.data.benchmark import Benchmark, load_benchmark, resplit
from remask.engine import Position, TrialStack
from remask.engine.saved_nets import check_predictor
from remask.errors import MethodError, RemaskError
from remask.methods import Method, find_method
from remask.nets.builders import NETS, NetBuilder, mlp
from remask.own_code import failure_of
from remask.setting_types import describe_errors

_SAMPLES_PER_CLASS = 12
_STEPS_PER_TASK = 6
_BUFFER, _REPLAY_BATCH = 20, 4
_LEARNING_RATES = (0.1, 0.05, 0.02)
_RUINOUS = 1e20  # a learning rate

_State = dict[str, Tensor]


@dataclass(frozen=True)
class Finding:
    """The outcome of one check."""

    check: str
    outcome: Literal["passed", "failed", "not checked"]
    text: str
    """What holds; or what is wrong, and what to do; or why it was not checked."""


class _NotChecked(Exception):  # noqa: N818 - no error
    """A check does not apply; the message says why."""


def check_method(
    method: type[Method] | str,
    *,
    net: NetBuilder | str = "mlp",
    benchmark: Benchmark | str = "split-digits",
    weights: Mapping[str, float] | None = None,
) -> list[Finding]:
    """Run a method briefly to find defects that would stay silent in long runs.

    Everything can also be given by name, `module:name` for your own code. The benchmark is cut to a
    few samples per class. Returns one finding per check; none `failed` if the method is correct.
    """
    subject = _Subject(method, net, benchmark, weights or {})
    findings: list[Finding] = []
    for name, check in _CHECKS.items():
        if findings and findings[0].outcome == "failed":
            findings.append(Finding(name, "not checked", f"{findings[0].check} failed"))
            continue
        try:
            findings.append(Finding(name, "passed", check(subject)))
        except _NotChecked as reason:
            findings.append(Finding(name, "not checked", str(reason)))
        except RemaskError as error:
            findings.append(Finding(name, "failed", str(error)))
        except Exception as error:
            findings.append(Finding(name, "failed", str(failure_of("it", error))))
    return findings


@dataclass(frozen=True, eq=False)
class _Moment:
    """A stack at some point of its run."""

    position: Position
    state: _State
    scores: Tensor | None
    """Scores of the first task, at the end of a task only."""


class _Subject:
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
        net_name = net if isinstance(net, str) else getattr(net, "__name__", "own-net")
        if not isinstance(net, str) and NETS.get(net_name, net) is not net:
            net_name = f"own-{net_name}"
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

    def end(self, configs: list[TrialConfig] | None = None) -> _State:
        """The state after a whole run."""
        stack = self.stack(configs)
        for _ in stack.run():
            pass
        return _copied(stack)

    @cached_property
    def run(self) -> tuple[TrialStack, list[_Moment]]:
        """A finished stack, with moments in the first task, at its end, and in the last task."""
        stack, moments, learnt = self.stack(), list[_Moment](), 0
        early, late = stack.total_steps // (3 * len(stack.tasks)), max(1, stack.total_steps - 2)
        for position in stack.run():
            ended, learnt = position.task > learnt, position.task
            first = ended and learnt == 1
            if first or (not ended and stack.steps_done in (early, late)):
                scores = stack.scores(self.inputs, 0) if first else None
                moments.append(_Moment(position, _copied(stack), scores))
        return stack, moments

    @cached_property
    def expected(self) -> _State:
        """The state at the end of the run that others are compared with."""
        return _copied(self.run[0])

    def restore_late(self, stack: TrialStack) -> None:
        """Bring a stack to a moment within an epoch of the last task."""
        moment = [moment for moment in self.run[1] if moment.position.step][-1]
        stack.restore(moment.state, moment.position)


def _copied(stack: TrialStack) -> _State:
    return {name: tensor.detach().clone() for name, tensor in stack.state().items()}


# The checks: each returns what holds, or raises


def _loss(subject: _Subject) -> str:
    stack, trains = subject.stack(), subject.method.trains_net
    prefix = "net/" if trains else "method/"
    before = {name: tensor for name, tensor in _copied(stack).items() if name.startswith(prefix)}
    next(stack.run())
    after = stack.state()
    if trains and any(at is not None for at in stack.diverged_at):
        raise MethodError("the very first loss is not a number; look for log(0), 0/0, inf - inf")
    for trial in range(len(subject.configs)):
        if any(not torch.equal(after[name][trial], old[trial]) for name, old in before.items()):
            continue
        raise MethodError(
            "the first step moved nothing: the loss has no gradient; compute it from "
            "step.stream.logits, and do not detach it"
            if trains
            else "the first step changed none of the method's tensors, and it trains no net: "
            "learn in `after_step`, and name what changes in `remembers`"
        )
    if trains:
        return "one number per trial, and the step moves every net"
    return "it trains no net, and the step changes what it remembers"


def _determinism(subject: _Subject) -> str:
    if odd := _different(subject.expected, subject.end()):
        raise MethodError(
            f"the same run twice ends differently, in {_some(odd)}; draw random numbers only from "
            f"self.context.generators or self.context.draw, and keep nothing on the class"
        )
    return "the same run twice ends with the same bits"


def _resume(subject: _Subject) -> str:
    shapes = {name: tensor.shape for name, tensor in subject.stack().state().items()}
    for name, tensor in subject.expected.items():
        own = name.startswith("method/")
        if shapes.get(name) != tensor.shape or (own and len(tensor) != len(subject.configs)):
            raise MethodError(
                f"{name} must be [S, ...] and of one shape from `prepare` to the end; it is "
                f"{list(tensor.shape)} at the end"
            )
    for moment in subject.run[1]:
        where = "restored at task {}, epoch {}, step {}".format(*moment.position)
        stack = subject.stack()
        stack.restore(moment.state, moment.position)
        before = moment.scores
        if before is not None and not _same_bits(before, stack.scores(subject.inputs, 0)):
            raise MethodError(f"{where}, it predicts differently. {_hint(subject)}")
        for _ in stack.run():
            pass
        if odd := _different(subject.expected, stack.state()):
            raise MethodError(
                f"{where}, the run ends differently, in {_some(odd)}. {_hint(subject)}"
            )
    return "saved, restored and continued, it ends with the same bits"


def _hint(subject: _Subject) -> str:
    """The attributes of the method that have changed and are not saved."""
    known = {*subject.method.remembers, *subject.method.weights, "context"}
    before, after = (vars(stack._method) for stack in (subject.stack(), subject.run[0]))
    lost = sorted(
        name
        for name in after.keys() - known
        if name not in before or not _same_value(before[name], after[name])
    )
    if lost:
        return f"Not saved, but changed: {', '.join(lost)}. Name them in `remembers`"
    return "Something that changes is not named in `remembers`"


def _stacking(subject: _Subject) -> str:
    exact, trials = True, len(subject.configs)
    for trial, config in enumerate(subject.configs):
        alone = _of_trials(subject.end([config]), 1, slice(None))
        stacked = _of_trials(subject.expected, trials, slice(trial, trial + 1))
        exact = exact and not _different(alone, stacked)
        learnt = (name for name in alone if not name.startswith("metrics/"))
        if odd := [name for name in learnt if not _close(alone[name], stacked[name])]:
            raise MethodError(
                f"a trial in a stack of three learns differently than alone, in {_some(odd)}; look "
                f"for a mean, sum or norm over the first axis, S"
            )
    bits = "bit for bit" if exact else "up to rounding"
    return f"three stacked trials learn the same as each alone, {bits}"


def _neighbours(subject: _Subject) -> str:
    first, *others = subject.configs
    ruined = subject.end([first.model_copy(update={"lr": _RUINOUS}), *others])
    expected, found = (
        _of_trials(state, len(subject.configs), slice(1, None))
        for state in (subject.expected, ruined)
    )
    if odd := _different(expected, found):
        raise MethodError(
            f"when one trial diverges, others change, in {_some(odd)}; compute nothing of a trial "
            f"from another's numbers"
        )
    return "a trial that diverges does not change the others"


class _Wrapped(nn.Sequential):
    """A chain of layers that the engine does not recognise as one."""


def _any_net(subject: _Subject) -> str:
    def wrapped(shape: tuple[int, ...], num_classes: int) -> nn.Module:
        chain = mlp(shape, num_classes)
        assert isinstance(chain, nn.Sequential)
        return _Wrapped(*chain)

    plain = _Subject(subject.given, "mlp", subject.benchmark, subject.weights)
    own = [config.model_copy(update={"net": "wrapped-mlp"}) for config in plain.configs]
    try:
        module = plain.stack(own, build=wrapped)
    except RemaskError as error:
        raise _NotChecked(f"it refuses an unknown net: {error}") from None
    moved = []
    for stack in (plain.stack(), module):
        plain.restore_late(stack)
        next(stack.run())
        moved.append({n: t for n, t in stack.state().items() if n.startswith("net/")})
    if odd := [name for name in moved[0] if not _close(moved[0][name], moved[1][name])]:
        raise MethodError(
            f"the same MLP, plain and wrapped in a class, takes different steps, in {_some(odd)}; "
            f"let the loss depend on the nets only through logits, features and parameters of "
            f"self.context.net"
        )
    return "the same net, plain and wrapped in a class, takes the same step"


def _prediction(subject: _Subject) -> str:
    try:
        check_predictor(subject.method)
    except MethodError as error:
        raise _NotChecked(error) from None
    stack, inputs = subject.run[0], subject.inputs
    for trial in range(len(subject.configs)):
        net = stack.net(trial)
        task = [0] if len(inspect.signature(net.forward).parameters) > 1 else []
        with torch.no_grad():
            scores: Tensor = net(inputs, *task)
        if not _close(scores, stack.scores(inputs, 0)[trial]):
            raise MethodError(
                "the net alone scores differently than the method does; `predictor` must compute "
                "the same as `scores`, for one trial"
            )
    return "the net alone, as `save_nets` writes it, predicts the same"


def _device(subject: _Subject) -> str:
    on_host = subject.method.works_on_host
    try:
        stack = subject.stack(device="meta")
        subject.restore_late(stack)
        next(stack.run())
    except Exception as error:
        if on_host is not None:
            raise _NotChecked(f"its step waits for the host: {on_host}") from None
        raise MethodError(
            f"{failure_of('a step without data', error)}. A step must create its tensors on "
            f"self.context.device and not read values (.item(), .cpu(), nonzero, if); if it must, "
            f"give the reason in `works_on_host`"
        ) from error
    return "a step stays on its device and does not wait for the host"


_CHECKS: dict[str, Callable[[_Subject], str]] = {
    "loss": _loss,
    "determinism": _determinism,
    "resume": _resume,
    "stacking": _stacking,
    "neighbours": _neighbours,
    "any net": _any_net,
    "prediction": _prediction,
    "device": _device,
}


def _of_trials(state: _State, trials: int, chosen: slice) -> _State:
    """The part of some trials of a state; memories are [S * M, ...], other tensors [S, ...]."""
    return {
        name: (
            tensor.view(trials, -1, *tensor.shape[1:]) if name.startswith("memory/") else tensor
        )[chosen]
        for name, tensor in state.items()
    }


def _different(one: _State, other: _State) -> list[str]:
    """The names of tensors that differ in any bit."""
    return [name for name in one if not _same_bits(one[name], other[name])]


def _same_bits(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are equal to the last bit, including NaN."""

    def bits(tensor: Tensor) -> Tensor:
        return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)

    return one.shape == other.shape and torch.equal(bits(one), bits(other))


def _same_value(one: object, other: object) -> bool:
    """Whether two attributes of a method are equal, as far as that can be determined."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return _same_bits(one, other)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same_value(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same_value, one, other))
    return repr(one) == repr(other) or " at 0x" in repr(one)  # an address means nothing


def _close(one: Tensor, other: Tensor) -> bool:
    if not one.is_floating_point():
        return torch.equal(one, other)
    return torch.allclose(one, other, rtol=1e-3, atol=1e-4, equal_nan=True)


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
