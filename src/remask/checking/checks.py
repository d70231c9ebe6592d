"""The checks, each of which a method can fail silently."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from remask.benchmarks import Benchmark, load_benchmark, resplit
from remask.checking.subject import (
    Finding,
    Outcome,
    Subject,
    different,
    of_trials,
    run,
    same_value,
    short_configs,
)
from remask.engine import TrialStack, check_predictor
from remask.errors import RemaskError
from remask.methods import Method, MethodError, find_method
from remask.nets import NETS, NetBuilder, mlp
from remask.own_code import failure_of

_SAMPLES_OF_A_CLASS = 12
_RUINOUS = 1e20  # a learning rate
_Answer = tuple[Outcome, str]


def check_method(
    method: type[Method] | str,
    *,
    net: NetBuilder | str = "mlp",
    benchmark: Benchmark | str = "split-digits",
    weights: Mapping[str, float] | None = None,
) -> list[Finding]:
    """Try a method in short runs, and find what would go wrong silently in long ones.

    Everything can be given by name as well, `module:name` for your own. The benchmark is cut to a
    few samples of each class. One finding per check; the method is in order if none has `failed`.
    """
    kind = find_method(method) if isinstance(method, str) else method
    subject = _subject(method, kind, net, benchmark, weights or {})
    findings: list[Finding] = []
    for check, does in _CHECKS.items():
        if findings and findings[0].outcome == "failed":
            findings.append(Finding(check, "not checked", f"{findings[0].check} failed"))
            continue
        try:
            outcome, text = does(subject)
        except RemaskError as error:
            outcome, text = "failed", str(error)
        except Exception as error:
            outcome, text = "failed", str(failure_of("it", error))
        findings.append(Finding(check, outcome, text))
    return findings


def _subject(
    method: type[Method] | str,
    kind: type[Method],
    net: NetBuilder | str,
    benchmark: Benchmark | str,
    weights: Mapping[str, float],
) -> Subject:
    if isinstance(benchmark, str):
        tasks = 3 if benchmark == "split-digits" else None
        benchmark = load_benchmark(benchmark, tasks=tasks, limit=_SAMPLES_OF_A_CLASS)
    else:
        benchmark = resplit(benchmark, limit=_SAMPLES_OF_A_CLASS)
    build = None if isinstance(net, str) else net
    net_name = net if isinstance(net, str) else _free_name(net)
    if unknown := sorted(set(weights) - set(kind.weights)):
        raise MethodError(f"{kind.title} has no weight {unknown[0]!r}; it has {[*kind.weights]}")
    try:
        name = method if isinstance(method, str) else method.name or method.__name__
        configs = short_configs(name, kind, benchmark, net_name, weights)
    except ValidationError as error:
        raise MethodError(f"the weights of {kind.title} cannot be used: {error}") from None
    return Subject(kind, benchmark, build, configs, by_name=isinstance(method, str))


def _free_name(build: NetBuilder) -> str:
    name = getattr(build, "__name__", "own-net")
    return f"own-{name}" if name in NETS and NETS[name] is not build else name


def _loss(subject: Subject) -> _Answer:
    stack = subject.stack()
    if not subject.method.trains_net:
        return _sums(stack)
    before = {n: t.clone() for n, t in stack.state().items() if n.startswith("net/")}
    next(stack.run())
    after = stack.state()
    for trial, diverged_at in enumerate(stack.diverged_at):
        if diverged_at is not None:
            return "failed", "the very first loss is not a number; look for log(0), 0/0, inf - inf"
        if all(torch.equal(after[name][trial], old[trial]) for name, old in before.items()):
            return "failed", (
                "the first step moved nothing: the loss has no gradient; compute it from "
                "step.stream.logits, and detach nothing that is to be learnt"
            )
    return "passed", "one number per trial, and the step moves every net"


def _sums(stack: TrialStack) -> _Answer:
    """Check that a method without a loss learns something in a step."""
    before = {n: t.clone() for n, t in stack.state().items() if n.startswith("method/")}
    next(stack.run())
    after = stack.state()
    for trial in range(len(stack.configs)):
        if all(torch.equal(after[name][trial], old[trial]) for name, old in before.items()):
            return "failed", (
                "the first step changed nothing that the method remembers, and it trains no net: "
                "learn in `after_step`, and name what changes in `remembers`"
            )
    return "passed", "it trains no net, and the step changes what it remembers"


def _determinism(subject: Subject) -> _Answer:
    odd = different(subject.run.end, run(subject.stack(), subject.test_inputs).end)
    if odd:
        return "failed", (
            f"the same run twice ends differently, in {_some(odd)}; draw random numbers from "
            f"self.context.generators or self.context.draw only, and keep nothing on the class"
        )
    return "passed", "the same run twice ends with the same bits"


def _resume(subject: Subject) -> _Answer:
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
            if different({"scores": moment.scores}, {"scores": scores}):
                return "failed", f"restored at {where}, it predicts differently. {_hint(subject)}"
        for _ in stack.run():
            pass
        if odd := different(subject.run.end, stack.state()):
            return "failed", (
                f"restored at {where}, the run ends differently, in {_some(odd)}. {_hint(subject)}"
            )
    return "passed", "saved, restored and gone on with, it ends with the same bits"


def _hint(subject: Subject) -> str:
    """Which attributes of the method have changed in the run, and are not saved."""
    known = {*subject.method.remembers, *subject.method.weights, "engine"}
    before, after = (vars(stack._method) for stack in (subject.stack(), subject.run.finished))
    lost = sorted(
        name
        for name in after.keys() - known
        if name not in before or not same_value(before[name], after[name])
    )
    if lost:
        return f"Not saved, but changed: {', '.join(lost)}. Name them in `remembers`"
    return "Something that changes is not named in `remembers`"


def _stacking(subject: Subject) -> _Answer:
    exact, trials = True, len(subject.configs)
    for trial, config in enumerate(subject.configs):
        single = run(subject.stack([config]), subject.test_inputs).end
        alone = of_trials(single, 1, slice(None))
        stacked = of_trials(subject.run.end, trials, slice(trial, trial + 1))
        learnt = [name for name in alone if not name.startswith("metrics/")]
        exact = exact and not different(alone, stacked)
        if odd := [name for name in learnt if not _close(alone[name], stacked[name])]:
            return "failed", (
                f"a trial in a stack of three learns something else than alone, in {_some(odd)}; "
                f"look for a mean, sum or norm over the first axis, S"
            )
    bits = "bit for bit" if exact else "up to rounding"
    return "passed", f"three trials at once learn what each learns alone, {bits}"


def _neighbours(subject: Subject) -> _Answer:
    first, *others = subject.configs
    ruined = subject.stack([first.model_copy(update={"lr": _RUINOUS}), *others])
    for _ in ruined.run():
        pass
    trials, untouched = len(subject.configs), slice(1, None)
    expected = of_trials(subject.run.end, trials, untouched)
    if odd := different(expected, of_trials(ruined.state(), trials, untouched)):
        return "failed", (
            f"when one trial diverges, others change, in {_some(odd)}; nothing of a trial may be "
            f"computed from another's numbers"
        )
    return "passed", "a trial that diverges leaves its neighbours alone"


class _Wrapped(nn.Sequential):
    """A chain of layers that does not look like one."""


def _any_net(subject: Subject) -> _Answer:
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
        return "not checked", f"it refuses a net that it does not know: {error}"
    moment = plain.late
    moved = []
    for stack in (plain.stack(), module):
        stack.restore(moment.state, moment.position)
        next(stack.run())
        moved.append({n: t for n, t in stack.state().items() if n.startswith("net/")})
    if odd := [name for name in moved[0] if not _close(moved[0][name], moved[1][name])]:
        return "failed", (
            f"the same MLP, plain and wrapped in a class, takes different steps, in {_some(odd)}; "
            f"let the loss depend on the nets through logits, features and parameters of "
            f"self.context.net only"
        )
    return "passed", "the same net, plain and wrapped in a class, takes the same step"


def _prediction(subject: Subject) -> _Answer:
    try:
        check_predictor(subject.method)
    except MethodError as error:
        return "not checked", str(error)
    stack, inputs = subject.run.finished, subject.test_inputs
    for trial in range(len(subject.configs)):
        net = stack.net(trial)
        told = [0] if len(inspect.signature(net.forward).parameters) > 1 else []
        with torch.no_grad():
            said: Tensor = net(inputs, *told)
        if not _close(said, stack.scores(inputs, 0)[trial]):
            return "failed", (
                "the net by itself scores differently than the method does; `predictor` must "
                "compute what `scores` does, of one trial"
            )
    return "passed", "the net by itself, as `--save-nets` writes it, predicts the same"


def _device(subject: Subject) -> _Answer:
    on_host = subject.method.works_on_host
    try:
        stack = subject.stack(device="meta")
        stack.restore(subject.late.state, subject.late.position)
        next(stack.run())
    except Exception as error:
        if on_host is not None:
            return "not checked", f"a step of it waits for the host: {on_host}"
        why = failure_of("a step without data", error)
        return "failed", (
            f"{why}. A step must make its tensors on self.context.device and ask for no values "
            f"(.item(), .cpu(), nonzero, if); where it must, say why in `works_on_host`"
        )
    return "passed", "a step stays on its device and does not wait for the host"


def _close(one: Tensor, other: Tensor) -> bool:
    if not one.is_floating_point():
        return torch.equal(one, other)
    return torch.allclose(one, other, rtol=1e-3, atol=1e-4, equal_nan=True)


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


_CHECKS: dict[str, Callable[[Subject], _Answer]] = {
    "loss": _loss,
    "determinism": _determinism,
    "resume": _resume,
    "stacking": _stacking,
    "neighbours": _neighbours,
    "any net": _any_net,
    "prediction": _prediction,
    "device": _device,
}
