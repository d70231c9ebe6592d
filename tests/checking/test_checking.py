"""`remask check` finds each silent defect of a method, and no other."""

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from remask import check_method
from remask.checking import Finding
from remask.methods import ER, METHODS, Gradients, Method, Step, Task, hal
from tests.command_line import CommandLine

CHECKS = [
    "loss", "determinism", "resume", "stacking", "neighbours", "any net", "prediction", "device",
]  # fmt: skip


def failures(findings: list[Finding]) -> dict[str, str]:
    assert [finding.check for finding in findings] == CHECKS
    return {finding.check: finding.text for finding in findings if finding.outcome == "failed"}


@pytest.mark.thorough
@pytest.mark.parametrize("method", METHODS)
def test_every_method_of_remask_passes(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hal, "_STEPS_ON_ANCHORS", 5)  # 100 take seconds
    findings = check_method(method)
    assert not failures(findings)
    left_out = {finding.check for finding in findings if finding.outcome == "not checked"}
    # PNN supports few nets; a method whose step needs the host states why.
    allowed = {"any net"} if method == "pnn" else set()
    assert left_out <= (allowed | {"device"} if METHODS[method].works_on_host else allowed)


class Sound(ER):
    """Uses nearly everything that a method may use."""

    name = "sound"
    weights: ClassVar = {"pull": 0.1}
    remembers = ("trail", "count")
    pull: Tensor

    def prepare(self) -> None:
        self.trail = {n: t.detach().clone() for n, t in self.context.net.parameters.items()}
        self.count = torch.zeros(self.context.trials, device=self.context.device)

    def adjust_gradients(self, step: Step, gradients: Gradients) -> Gradients:
        return {
            n: g + self.pull.view(-1, *[1] * (g.ndim - 1)) * (self.context.net.parameters[n] - t)
            for n, g in gradients.items()
            for t in [self.trail[n]]
        }

    @torch.no_grad()
    def after_step(self, step: Step) -> None:
        self.count += 1
        for name, tensor in self.context.net.parameters.items():
            self.trail[name].lerp_(tensor, 0.1)


def test_a_sound_method_with_a_state_passes_every_check() -> None:
    findings = check_method(Sound)
    assert [finding.outcome for finding in findings] == ["passed"] * len(CHECKS), findings


# One defect each


def changed(change: Callable[[Method, Tensor, Step], Tensor]) -> type[Method]:
    """ER with a change to its loss, [S]."""

    class Changed(ER):
        def loss(self, step: Step) -> Tensor:
            return change(self, super().loss(step), step)

    return Changed


def reads_values(_: Method, loss: Tensor, step: Step) -> Tensor:
    return loss * (1 + step.stream.inputs[0, 0].sum().item() * 0)


def depends_on_the_net(method: Method, loss: Tensor, _: Step) -> Tensor:
    return loss * (1 if type(method.context.net.module) is nn.Sequential else 2)


class Forgetful(ER):
    """Its step depends on how many there were, and that is not saved."""

    def prepare(self) -> None:
        self.steps_taken = torch.zeros(self.context.trials, device=self.context.device)

    def loss(self, step: Step) -> Tensor:
        return super().loss(step) / (1 + self.steps_taken)

    def after_step(self, step: Step) -> None:
        self.steps_taken += 1


class ForgetsWhatItPredictsWith(ER):
    """As iCaRL was: right in a run that is never stopped between tasks."""

    def prepare(self) -> None:
        self.offset = torch.zeros(self.context.num_classes, device=self.context.device)

    def end_task(self, task: Task) -> None:
        self.offset = task.seen.float()

    def scores(self, inputs: Tensor, task: int) -> Tensor:
        return self.context.net.predict(inputs) + self.offset


class Grows(ER):
    remembers = ("norms",)

    def prepare(self) -> None:
        self.norms = torch.zeros(self.context.trials, 1, device=self.context.device)

    def after_step(self, step: Step) -> None:
        self.norms = torch.cat([self.norms, self.norms[:, :1]], dim=1)


class FreezesAll(ER):
    """Skips the step of all trials if the gradient of one is not finite."""

    def adjust_gradients(self, step: Step, gradients: Gradients) -> Gradients:
        fine = torch.stack([gradient.isfinite().all() for gradient in gradients.values()]).all()
        return {name: torch.where(fine, g, torch.zeros_like(g)) for name, g in gradients.items()}


class WrongPredictor(ER):
    def scores(self, inputs: Tensor, task: int) -> Tensor:
        return -self.context.net.predict(inputs)

    @classmethod
    def predictor(cls, net: nn.Module, own: Any) -> nn.Module:
        return net


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("method", "check", "message"),
    [
        (changed(lambda _, loss, step: loss.mean()), "loss", "one entry"),
        (changed(lambda _, loss, step: loss * 0), "loss", "moved nothing"),
        (changed(lambda _, loss, step: loss + math.nan), "loss", "not a number"),
        (changed(lambda _, loss, step: dict[str, Tensor]()["width"]), "loss", "KeyError: 'width'"),
        (changed(lambda _, loss, step: loss * torch.rand(1)), "determinism", "context.generators"),
        (Forgetful, "resume", "Not saved, but changed: steps_taken. Name them in `remembers`"),
        (ForgetsWhatItPredictsWith, "resume", "predicts differently. Not saved, but changed: off"),
        (Grows, "resume", "method/norms must be [S, ...] and of one shape"),
        (changed(lambda _, loss, step: loss / loss.detach().mean()), "stacking", "the first axis"),
        (FreezesAll, "neighbours", "when one trial diverges, others change"),
        (changed(depends_on_the_net), "any net", "takes different steps"),
        (WrongPredictor, "prediction", "`predictor` must compute the same as `scores`"),
        (changed(reads_values), "device", f"{__file__}:"),
        (changed(lambda _, loss, step: loss + torch.zeros(len(loss))), "device", "create its"),
    ],
)  # fmt: skip
def test_a_defect_is_found_with_advice(method: type[Method], check: str, message: str) -> None:
    failed = failures(check_method(method))
    assert check in failed, failed
    assert message in failed[check]
    if check != "loss":
        assert next(iter(failed)) == check  # what comes before it is in order


def test_runs_of_a_random_method_are_not_compared_any_further() -> None:
    method = changed(lambda _, loss, step: loss * random.random())
    findings = {finding.check: finding for finding in check_method(method)}
    unchecked = [name for name, each in findings.items() if each.outcome == "not checked"]
    assert unchecked == ["resume", "stacking", "neighbours", "any net"]
    assert {findings[name].text for name in unchecked} == {"determinism failed"}
    assert findings["prediction"].outcome == findings["device"].outcome == "passed"


def test_reading_values_with_a_reason_is_not_a_failure() -> None:
    method = changed(reads_values)
    method.works_on_host = "it counts there"
    (finding,) = (f for f in check_method(method) if f.check == "device")
    assert finding.outcome == "not checked"
    assert "it counts there" in finding.text


def test_the_command_prints_a_line_per_check_and_fails_with_code_1(
    remask: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "checked_methods.py").write_text(
        "from remask.methods import ER\n"
        "class Good(ER):\n    weights = {'past': 1.0}\n"
        "class Bad(ER):\n    def loss(self, step):\n        return super().loss(step).mean()\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    good = remask.succeed("check", "checked_methods:Good", "--weight", "past=2")
    assert [line.split()[0] for line in good.out.splitlines()] == ["passed"] * len(CHECKS)
    bad = remask("check", "checked_methods:Bad")
    assert bad.code == 1
    lines = bad.out.splitlines()
    assert lines[0].startswith("failed      loss ")
    assert all(line.startswith("not checked") for line in lines[1:])
    assert not remask.store.exists()
    for arguments in (["nowhere:Mine"], ["checked_methods:Good", "--weight", "push=2"]):
        assert remask.refusal("check", *arguments).startswith("error: ")
