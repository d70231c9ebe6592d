"""Checks of a custom method in short runs, for defects that a long run would hide."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from remask.checking.subject import (
    Subject,
    close,
    copied,
    different,
    finished,
    of_trials,
    same_bits,
    same_value,
    some,
)
from remask.data.benchmark import Benchmark
from remask.engine.saved_nets import check_predictor
from remask.errors import MethodError, RemaskError
from remask.methods import Method
from remask.nets.builders import NetBuilder, mlp
from remask.own_code import failure_of

_RUINOUS = 1e20  # a learning rate
_COMPARING_RUNS = frozenset({"resume", "stacking", "neighbours", "any net"})
"""Checks that say nothing about a method of which two equal runs differ."""


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
    subject = Subject(method, net, benchmark, weights or {})
    findings: list[Finding] = []
    for name, check in _CHECKS.items():
        needed = ("loss", "determinism") if name in _COMPARING_RUNS else ("loss",)
        failed = [f.check for f in findings if f.outcome == "failed" and f.check in needed]
        if failed:
            findings.append(Finding(name, "not checked", f"{failed[0]} failed"))
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


# The checks: each returns what holds, or raises


def _loss(subject: Subject) -> str:
    stack, trains = subject.stack(), subject.method.trains_net
    prefix = "net/" if trains else "method/"
    before = {name: tensor for name, tensor in copied(stack).items() if name.startswith(prefix)}
    next(stack.run())
    after = stack.state()
    if trains and any(at is not None for at in stack.diverged_at):
        raise MethodError("the first loss is not a number; look for log(0), 0/0, inf - inf")
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


def _determinism(subject: Subject) -> str:
    if odd := different(subject.expected, subject.end()):
        raise MethodError(
            f"the same run twice ends differently, in {some(odd)}; draw random numbers only from "
            f"self.context.generators or self.context.draw, and keep nothing on the class"
        )
    return "the same run twice ends with the same bits"


def _resume(subject: Subject) -> str:
    shapes = {name: tensor.shape for name, tensor in subject.stack().state().items()}
    for name, tensor in subject.expected.items():
        if name.startswith("method/") and (
            shapes.get(name) != tensor.shape or len(tensor) != len(subject.configs)
        ):
            raise MethodError(
                f"{name} must be [S, ...] and of one shape from `prepare` to the end; it is "
                f"{list(tensor.shape)} at the end"
            )
    for moment in subject.run[1]:
        where = "restored at task {}, epoch {}, step {}".format(*moment.position)
        stack = subject.stack()
        stack.restore(moment.state, moment.position)
        before = moment.scores
        if before is not None and not same_bits(before, stack.scores(subject.inputs, 0)):
            raise MethodError(f"{where}, it predicts differently. {_hint(subject)}")
        if odd := different(subject.expected, finished(stack)):
            raise MethodError(
                f"{where}, the run ends differently, in {some(odd)}. {_hint(subject)}"
            )
    return "saved, restored and continued, it ends with the same bits"


def _hint(subject: Subject) -> str:
    """The attributes of the method that have changed and are not saved."""
    known = {*subject.method.remembers, *subject.method.weights, "context"}
    before, after = (vars(stack._method) for stack in (subject.stack(), subject.run[0]))
    lost = sorted(
        name
        for name in after.keys() - known
        if name not in before or not same_value(before[name], after[name])
    )
    if lost:
        return f"Not saved, but changed: {', '.join(lost)}. Name them in `remembers`"
    return "Something that changes is not named in `remembers`"


def _stacking(subject: Subject) -> str:
    exact, trials = True, len(subject.configs)
    for trial, config in enumerate(subject.configs):
        alone = of_trials(subject.end([config]), 1, slice(None))
        stacked = of_trials(subject.expected, trials, slice(trial, trial + 1))
        exact = exact and not different(alone, stacked)
        learnt = (name for name in alone if not name.startswith("metrics/"))
        if odd := [name for name in learnt if not close(alone[name], stacked[name])]:
            raise MethodError(
                f"a trial in a stack of three learns differently than alone, in {some(odd)}; look "
                f"for a mean, sum or norm over the first axis, S"
            )
    bits = "bit for bit" if exact else "up to rounding"
    return f"three stacked trials learn the same as each alone, {bits}"


def _neighbours(subject: Subject) -> str:
    first, *others = subject.configs
    ruined = subject.end([first.model_copy(update={"lr": _RUINOUS}), *others])
    expected, found = (
        of_trials(state, len(subject.configs), slice(1, None))
        for state in (subject.expected, ruined)
    )
    if odd := different(expected, found):
        raise MethodError(
            f"when one trial diverges, others change, in {some(odd)}; compute nothing of a trial "
            f"from another's numbers"
        )
    return "a trial that diverges does not change the others"


class _Wrapped(nn.Sequential):
    """A chain of layers that the engine does not recognise as one."""


def _any_net(subject: Subject) -> str:
    def wrapped(shape: tuple[int, ...], num_classes: int) -> nn.Module:
        chain = mlp(shape, num_classes)
        assert isinstance(chain, nn.Sequential)
        return _Wrapped(*chain)

    plain = Subject(subject.given, "mlp", subject.benchmark, subject.weights)
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
    if odd := [name for name in moved[0] if not close(moved[0][name], moved[1][name])]:
        raise MethodError(
            f"the same MLP, plain and wrapped in a class, takes different steps, in {some(odd)}; "
            f"let the loss depend on the nets only through logits, features and parameters of "
            f"self.context.net"
        )
    return "the same net, plain and wrapped in a class, takes the same step"


def _prediction(subject: Subject) -> str:
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
        if not close(scores, stack.scores(inputs, 0)[trial]):
            raise MethodError(
                "the net alone scores differently than the method does; `predictor` must compute "
                "the same as `scores`, for one trial"
            )
    return "the net alone, as `save_nets` writes it, predicts the same"


def _device(subject: Subject) -> str:
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


_CHECKS: dict[str, Callable[[Subject], str]] = {
    check.__name__[1:].replace("_", " "): check
    for check in (
        _loss,
        _determinism,
        _resume,
        _stacking,
        _neighbours,
        _any_net,
        _prediction,
        _device,
    )
}
