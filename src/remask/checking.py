"""Checks of a custom method in short runs, for defects that a long run would hide."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from remask.config import COMMON_WEIGHTS, TrialConfig
from remask.data.benchmark import Benchmark, load_benchmark, resplit
from remask.engine import Position, TrialStack, check_predictor
from remask.errors import MethodError, RemaskError
from remask.methods import Method, find_method
from remask.nets.builders import NETS, NetBuilder, mlp
from remask.own_code import failure_of
from remask.setting_types import describe_errors

Outcome = Literal["passed", "failed", "not checked"]
_Answer = tuple[Outcome, str]
_SAMPLES_PER_CLASS = 12
_STEPS_PER_TASK = 6
_BUFFER, _REPLAY_BATCH = 20, 4
_LEARNING_RATES = (0.1, 0.05, 0.02)
_RUINOUS = 1e20  # a learning rate


@dataclass(frozen=True)
class Finding:
    """The outcome of one check."""

    check: str
    outcome: Outcome
    text: str
    """What holds; or what is wrong, and what to do; or why it was not checked."""


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
    subject = _subject(method, net, benchmark, weights or {})
    findings: list[Finding] = []
    for check, answer in _CHECKS.items():
        if findings and findings[0].outcome == "failed":
            findings.append(Finding(check, "not checked", f"{findings[0].check} failed"))
            continue
        try:
            outcome, text = answer(subject)
        except RemaskError as error:
            outcome, text = "failed", str(error)
        except Exception as error:
            outcome, text = "failed", str(failure_of("it", error))
        findings.append(Finding(check, outcome, text))
    return findings


@dataclass(frozen=True, eq=False)
class _Moment:
    """A stack at some point of its run."""

    position: Position
    state: dict[str, Tensor]
    scores: Tensor | None
    """Scores of the first task, at the end of a task only."""


@dataclass(frozen=True, eq=False)
class _Run:
    """A whole run: its end, and some moments during it."""

    moments: list[_Moment]
    end: dict[str, Tensor]
    finished: TrialStack


@dataclass(frozen=True, eq=False)
class _Subject:
    """A method with the benchmark and the net to check it on."""

    method: type[Method]
    benchmark: Benchmark
    build: NetBuilder | None
    """None if the configs name the net."""
    configs: Sequence[TrialConfig]
    by_name: bool
    """Whether the configs name the method."""

    def stack(
        self,
        configs: Sequence[TrialConfig] | None = None,
        *,
        build: NetBuilder | None = None,
        device: str = "cpu",
    ) -> TrialStack:
        """A new stack, by default of all trials."""
        return TrialStack(
            self.configs if configs is None else configs,
            self.benchmark,
            method=None if self.by_name else self.method,
            build_net=build or self.build,
            device=device,
        )

    @cached_property
    def run(self) -> _Run:
        """The run that others are compared with."""
        return _run(self.stack(), self.test_inputs)

    @property
    def test_inputs(self) -> Tensor:
        return self.benchmark.test_inputs[:50] * self.benchmark.scale

    @property
    def late(self) -> _Moment:
        """A moment within an epoch of the last task."""
        return [moment for moment in self.run.moments if moment.position.step][-1]


def _subject(
    method: type[Method] | str,
    net: NetBuilder | str,
    benchmark: Benchmark | str,
    weights: Mapping[str, float],
) -> _Subject:
    kind = find_method(method) if isinstance(method, str) else method
    if isinstance(benchmark, str):
        tasks = 3 if benchmark == "split-digits" else None
        benchmark = load_benchmark(benchmark, tasks=tasks, limit=_SAMPLES_PER_CLASS)
    else:
        benchmark = resplit(benchmark, limit=_SAMPLES_PER_CLASS)
    if unknown := sorted(set(weights) - set(kind.weights)):
        raise MethodError(f"{kind.title} has no weight {unknown[0]!r}; it has {[*kind.weights]}")
    name = method if isinstance(method, str) else method.name or method.__name__
    net_name = net if isinstance(net, str) else getattr(net, "__name__", "own-net")
    if not isinstance(net, str) and NETS.get(net_name, net) is not net:
        net_name = f"own-{net_name}"
    try:
        configs = _short_configs(name, kind, benchmark, net_name, weights)
    except ValidationError as error:
        raise MethodError(describe_errors(error)) from None
    build = None if isinstance(net, str) else net
    return _Subject(kind, benchmark, build, configs, by_name=isinstance(method, str))


def _short_configs(
    name: str, method: type[Method], benchmark: Benchmark, net: str, weights: Mapping[str, float]
) -> list[TrialConfig]:
    """Three trials that differ in seed, learning rate and, where supported, mask."""
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
            batch=max(2, smallest // _STEPS_PER_TASK),
            buffer=max(_BUFFER, least) if method.uses_buffer() else 0,
            replay_batch=_REPLAY_BATCH if method.uses_replay_batch() else 0,
            epochs=1,
            weights=tuple(sorted(chosen.items())),
            **common,
            **dict(benchmark.asked),
        )
        for seed, (mask, lr) in enumerate(zip(masks, _LEARNING_RATES, strict=True))
    ]


def _run(stack: TrialStack, inputs: Tensor) -> _Run:
    """Run a stack to its end, with moments in the first task, at its end, and in the last task."""
    early, late = stack.total_steps // (3 * len(stack.tasks)), max(1, stack.total_steps - 2)
    moments: list[_Moment] = []
    learnt = 0
    for position in stack.run():
        ended, learnt = position.task > learnt, position.task
        is_first_end = ended and learnt == 1
        if is_first_end or (not ended and stack.steps_done in (early, late)):
            scores = stack.scores(inputs, 0) if is_first_end else None
            moments.append(_Moment(position, _copied(stack), scores))
    return _Run(moments, _copied(stack), stack)


def _copied(stack: TrialStack) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in stack.state().items()}


# The checks


def _loss(subject: _Subject) -> _Answer:
    stack = subject.stack()
    trains = subject.method.trains_net
    prefix = "net/" if trains else "method/"
    before = {name: tensor for name, tensor in _copied(stack).items() if name.startswith(prefix)}
    next(stack.run())
    after = stack.state()
    for trial, diverged_at in enumerate(stack.diverged_at):
        if trains and diverged_at is not None:
            return "failed", "the very first loss is not a number; look for log(0), 0/0, inf - inf"
        if any(not torch.equal(after[name][trial], old[trial]) for name, old in before.items()):
            continue
        if trains:
            return "failed", (
                "the first step moved nothing: the loss has no gradient; compute it from "
                "step.stream.logits, and do not detach it"
            )
        return "failed", (
            "the first step changed none of the method's tensors, and it trains no net: learn in "
            "`after_step`, and name what changes in `remembers`"
        )
    if trains:
        return "passed", "one number per trial, and the step moves every net"
    return "passed", "it trains no net, and the step changes what it remembers"


def _determinism(subject: _Subject) -> _Answer:
    if odd := _different(subject.run.end, _run(subject.stack(), subject.test_inputs).end):
        return "failed", (
            f"the same run twice ends differently, in {_some(odd)}; draw random numbers only from "
            f"self.context.generators or self.context.draw, and keep nothing on the class"
        )
    return "passed", "the same run twice ends with the same bits"


def _resume(subject: _Subject) -> _Answer:
    shapes = {name: tensor.shape for name, tensor in subject.stack().state().items()}
    for name, tensor in subject.run.end.items():
        own = name.startswith("method/")
        if shapes.get(name) != tensor.shape or (own and len(tensor) != len(subject.configs)):
            return "failed", (
                f"{name} must be [S, ...] and of one shape from `prepare` to the end; it is "
                f"{list(tensor.shape)} at the end"
            )
    for moment in subject.run.moments:
        where = "task {}, epoch {}, step {}".format(*moment.position)
        stack = subject.stack()
        stack.restore(moment.state, moment.position)
        if moment.scores is not None:
            scores = stack.scores(subject.test_inputs, 0)
            if not _same_bits(moment.scores, scores):
                return "failed", f"restored at {where}, it predicts differently. {_hint(subject)}"
        for _ in stack.run():
            pass
        if odd := _different(subject.run.end, stack.state()):
            return "failed", (
                f"restored at {where}, the run ends differently, in {_some(odd)}. {_hint(subject)}"
            )
    return "passed", "saved, restored and continued, it ends with the same bits"


def _hint(subject: _Subject) -> str:
    """The attributes of the method that have changed and are not saved."""
    known = {*subject.method.remembers, *subject.method.weights, "context"}
    before, after = (vars(stack._method) for stack in (subject.stack(), subject.run.finished))
    lost = sorted(
        name
        for name in after.keys() - known
        if name not in before or not _same_value(before[name], after[name])
    )
    if lost:
        return f"Not saved, but changed: {', '.join(lost)}. Name them in `remembers`"
    return "Something that changes is not named in `remembers`"


def _stacking(subject: _Subject) -> _Answer:
    exact, trials = True, len(subject.configs)
    for trial, config in enumerate(subject.configs):
        single = _run(subject.stack([config]), subject.test_inputs).end
        alone = _of_trials(single, 1, slice(None))
        stacked = _of_trials(subject.run.end, trials, slice(trial, trial + 1))
        learnt = [name for name in alone if not name.startswith("metrics/")]
        exact = exact and not _different(alone, stacked)
        if odd := [name for name in learnt if not _close(alone[name], stacked[name])]:
            return "failed", (
                f"a trial in a stack of three learns differently than alone, in {_some(odd)}; look "
                f"for a mean, sum or norm over the first axis, S"
            )
    bits = "bit for bit" if exact else "up to rounding"
    return "passed", f"three stacked trials learn the same as each alone, {bits}"


def _neighbours(subject: _Subject) -> _Answer:
    first, *others = subject.configs
    ruined = subject.stack([first.model_copy(update={"lr": _RUINOUS}), *others])
    for _ in ruined.run():
        pass
    trials, untouched = len(subject.configs), slice(1, None)
    expected = _of_trials(subject.run.end, trials, untouched)
    if odd := _different(expected, _of_trials(ruined.state(), trials, untouched)):
        return "failed", (
            f"when one trial diverges, others change, in {_some(odd)}; compute nothing of a trial "
            f"from another's numbers"
        )
    return "passed", "a trial that diverges does not change the others"


class _Wrapped(nn.Sequential):
    """A chain of layers that the engine does not recognise as one."""


def _any_net(subject: _Subject) -> _Answer:
    def wrapped(shape: tuple[int, ...], num_classes: int) -> nn.Module:
        chain = mlp(shape, num_classes)
        assert isinstance(chain, nn.Sequential)
        return _Wrapped(*chain)

    configs = [config.model_copy(update={"net": "mlp"}) for config in subject.configs]
    own = [config.model_copy(update={"net": "wrapped-mlp"}) for config in subject.configs]
    plain = replace(subject, build=None, configs=configs)
    try:
        module = plain.stack(own, build=wrapped)
    except RemaskError as error:
        return "not checked", f"it refuses an unknown net: {error}"
    moment = plain.late
    moved = []
    for stack in (plain.stack(), module):
        stack.restore(moment.state, moment.position)
        next(stack.run())
        moved.append({n: t for n, t in stack.state().items() if n.startswith("net/")})
    if odd := [name for name in moved[0] if not _close(moved[0][name], moved[1][name])]:
        return "failed", (
            f"the same MLP, plain and wrapped in a class, takes different steps, in {_some(odd)}; "
            f"let the loss depend on the nets only through logits, features and parameters of "
            f"self.context.net"
        )
    return "passed", "the same net, plain and wrapped in a class, takes the same step"


def _prediction(subject: _Subject) -> _Answer:
    try:
        check_predictor(subject.method)
    except MethodError as error:
        return "not checked", str(error)
    stack, inputs = subject.run.finished, subject.test_inputs
    for trial in range(len(subject.configs)):
        net = stack.net(trial)
        task = [0] if len(inspect.signature(net.forward).parameters) > 1 else []
        with torch.no_grad():
            scores: Tensor = net(inputs, *task)
        if not _close(scores, stack.scores(inputs, 0)[trial]):
            return "failed", (
                "the net alone scores differently than the method does; `predictor` must compute "
                "the same as `scores`, for one trial"
            )
    return "passed", "the net alone, as `save_nets` writes it, predicts the same"


def _device(subject: _Subject) -> _Answer:
    on_host = subject.method.works_on_host
    try:
        stack = subject.stack(device="meta")
        stack.restore(subject.late.state, subject.late.position)
        next(stack.run())
    except Exception as error:
        if on_host is not None:
            return "not checked", f"its step waits for the host: {on_host}"
        why = failure_of("a step without data", error)
        return "failed", (
            f"{why}. A step must create its tensors on self.context.device and not read values "
            f"(.item(), .cpu(), nonzero, if); if it must, give the reason in `works_on_host`"
        )
    return "passed", "a step stays on its device and does not wait for the host"


_CHECKS: dict[str, Callable[[_Subject], _Answer]] = {
    "loss": _loss,
    "determinism": _determinism,
    "resume": _resume,
    "stacking": _stacking,
    "neighbours": _neighbours,
    "any net": _any_net,
    "prediction": _prediction,
    "device": _device,
}


def _of_trials(state: Mapping[str, Tensor], trials: int, chosen: slice) -> dict[str, Tensor]:
    """The part of some trials of a state; memories are [S * M, ...], other tensors [S, ...]."""
    return {
        name: (
            tensor.view(trials, -1, *tensor.shape[1:]) if name.startswith("memory/") else tensor
        )[chosen]
        for name, tensor in state.items()
    }


def _different(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> list[str]:
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
