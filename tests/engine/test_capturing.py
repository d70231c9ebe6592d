"""Captured steps: compiled by torch.compile, and otherwise as they were."""

import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from remask.benchmarks import Benchmark
from remask.config import TrialConfig
from remask.engine import TrialStack, capturing
from remask.engine.capturing import CaptureError
from remask.learner import Learner
from remask.methods import METHODS, Method, Step
from remask.nets import mlp
from tests.command_line import QUICK, CommandLine
from tests.engine.stack_samples import batch_normed, finish, small_mlp, snapshot
from tests.learner.samples import blobs, create

MakeConfig = Callable[..., TrialConfig]
Graphs = list[tuple[int, ...]]
"""The shape of the inputs of each graph that was run."""


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Graphs:
    """In place of a compiler: the captured graphs are run as they are, and counted."""
    run: Graphs = []

    def backend(graph: fx.GraphModule, _: list[Tensor]) -> Callable[..., Any]:
        def counted(*inputs: Tensor) -> Any:
            run.append(max((tuple(given.shape) for given in inputs), key=len))
            return graph.forward(*inputs)

        return counted

    monkeypatch.setattr(capturing, "BACKEND", backend)
    return run


class Wrapped(nn.Module):
    """A net that nobody can see into."""

    def __init__(self, shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__()
        self.net = mlp(shape, num_classes, hidden=(8,))

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.net(inputs)
        return logits


class Dropping(Wrapped):
    """A net that draws random numbers in a way that no module of it tells."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(F.dropout(inputs, 0.3, self.training))


def largest_difference(one: TrialStack, other: TrialStack) -> float:
    pairs = zip(snapshot(one).items(), snapshot(other).values(), strict=True)
    return max(float((a.double() - b.double()).abs().max()) for (n, a), b in pairs if "net/" in n)


@pytest.mark.parametrize(
    ("build", "trials", "sizes"),
    [
        # One graph per step of 5 + 4 + 4 samples; with batch statistics, one per batch of it.
        (small_mlp, 2, {13}),
        pytest.param(Dropping, 2, {13}, marks=pytest.mark.slow),
        pytest.param(batch_normed, 1, {4, 5}, marks=pytest.mark.slow),
        pytest.param(batch_normed, 2, {4, 5}, marks=pytest.mark.slow),
    ],
)
def test_full_steps_are_captured_and_learn_what_they_learnt(
    tiny: Benchmark,
    config: MakeConfig,
    graphs: Graphs,
    build: Callable[..., nn.Module],
    trials: int,
    sizes: set[int],
) -> None:
    configs = [config(seed=seed, mask=-1.0) for seed in range(trials)]
    plain = TrialStack(configs, tiny, build_net=build)
    captured = TrialStack(configs, tiny, build_net=build, compile=True)
    for one, other in zip(finish(captured).results(), finish(plain).results(), strict=True):
        np.testing.assert_array_equal(one.class_il, other.class_il)
    assert largest_difference(captured, plain) < 1e-5
    assert {shape[-4] for shape in graphs} == sizes
    epochs, full_batches = 2, sum(len(task.rows) // 5 for task in captured.tasks)
    assert len(graphs) >= epochs * full_batches - 1  # the first has nothing to replay


@pytest.mark.slow
def test_a_net_that_cannot_be_compiled_is_refused_in_plain_words(
    tiny: Benchmark, config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(graph: fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        raise RuntimeError("there is no such instruction")

    monkeypatch.setattr(capturing, "BACKEND", refuses)
    for build, what in ((small_mlp, "the step"), (batch_normed, "the net 'small'")):
        stack = TrialStack([config()], tiny, build_net=build, compile=True)
        with pytest.raises(CaptureError) as refused:
            finish(stack)
        assert str(refused.value).startswith(f"{what} runs, but torch.compile fails on it (")
        assert "there is no such instruction" in str(refused.value)
        assert "without --compile" in str(refused.value)


def test_without_a_cpp_compiler_nothing_is_trained(
    remask: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    answer = remask("run", *QUICK, "--compile")
    assert answer.code == 1
    assert "needs a C++ compiler, and 'no-such-compiler' is not on PATH" in answer.text
    assert answer.out == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "method"),
    # PNN is for nets that it can see into.
    [*((small_mlp, name) for name in METHODS), *((Wrapped, n) for n in METHODS if n != "pnn")],
)
def test_every_method_learns_the_same_captured(
    tiny: Benchmark,
    config: MakeConfig,
    monkeypatch: pytest.MonkeyPatch,
    build: Callable[..., nn.Module],
    method: str,
) -> None:
    monkeypatch.setattr(capturing, "BACKEND", "aot_eager")
    configs = [config(method=method, seed=seed, lr=0.03) for seed in range(2)]
    plain = TrialStack(configs, tiny, build_net=build)
    captured = TrialStack(configs, tiny, build_net=build, compile=True)
    assert largest_difference(finish(captured), finish(plain)) < 1e-4


@pytest.mark.slow
def test_a_loss_that_needs_a_gradient_of_a_gradient_is_refused_in_plain_words(
    tiny: Benchmark, config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Steep(Method):
        name = title = "steep"

        def loss(self, step: Step) -> Tensor:
            loss = step.stream_loss()
            weights = list(self.engine.net.parameters.values())
            slopes = torch.autograd.grad(loss.sum(), weights, create_graph=True)
            return loss + sum(slope.square().flatten(1).sum(1) for slope in slopes)

    monkeypatch.setattr(capturing, "BACKEND", "aot_eager")
    chosen = [config(method="steep")]
    finish(TrialStack(chosen, tiny, method=Steep, build_net=Wrapped))
    stack = TrialStack(chosen, tiny, method=Steep, build_net=Wrapped, compile=True)
    with pytest.raises(CaptureError, match=r"double backward.*without --compile"):
        finish(stack)


@pytest.mark.slow
def test_the_visits_of_a_learner_are_captured(tmp_path: Path, graphs: Graphs) -> None:
    said = []
    for name, compiled in (("plain", False), ("compiled", True)):
        learner = create(tmp_path / name, compile=compiled)
        learner.learn(*blobs(["ant", "bee"], seed=0), name="first")
        assert not graphs or compiled
        learner = Learner.open(tmp_path / name, compile=compiled)
        before = len(graphs)
        learner.learn(*blobs(["cat"], seed=1), name="second")
        assert (len(graphs) > before) == compiled
        said.append(learner.evaluate(*blobs(learner.classes, seed=99)).per_class)
    assert said[0] == said[1]


# ---- With torch's own compiler: seconds each ----------------------------------------------------

by_inductor = pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")
"""Importing it uses what torch has declared obsolete."""


@by_inductor
@pytest.mark.slow
@pytest.mark.parametrize("method", ["derpp", "er_ema"])
@pytest.mark.parametrize(("net", "lr", "tasks"), [("mlp", 0.03, 5), ("resnet18:4", 0.001, 1)])
def test_compiled_trials_learn_what_others_learn(
    digits: Benchmark, config: MakeConfig, net: str, lr: float, tasks: int, method: str
) -> None:
    """Of the ResNet, while rounding is small: from 1e-7 it can grow tenfold with every step."""
    chosen = {"benchmark": "split-digits", "net": net, "lr": lr, "buffer": 50, "mask": -1.0}
    configs = [
        config(method=method, seed=seed, batch=15, replay_batch=15, epochs=1, **chosen)
        for seed in range(1 if net == "resnet18:4" else 2)
    ]
    plain, compiled = TrialStack(configs, digits), TrialStack(configs, digits, compile=True)
    for stack in (plain, compiled):
        list(islice(stack.run(), 20))
    assert 0 < largest_difference(plain, compiled) < 1e-4
    for stack in (plain, compiled):
        while stack.position.task < tasks:
            list(islice(stack.run(), 1))
    for one, other in zip(plain.results(), compiled.results(), strict=True):
        accuracies = [np.nanmean(result.class_il[tasks - 1]) for result in (one, other)]
        assert accuracies[0] == pytest.approx(accuracies[1], abs=0.5)


@by_inductor
@pytest.mark.slow
@pytest.mark.parametrize("build", [small_mlp, batch_normed, Dropping])
def test_a_compiled_run_that_was_stopped_ends_with_the_same_bits(
    tiny: Benchmark, config: MakeConfig, build: Callable[..., nn.Module]
) -> None:
    configs = [config(seed=seed) for seed in range(2)]

    def stack() -> TrialStack:
        return TrialStack(configs, tiny, build_net=build, compile=True)

    whole, stopped, resumed = finish(stack()), stack(), stack()
    assert largest_difference(whole, finish(TrialStack(configs, tiny, build_net=build))) < 1e-4
    list(islice(stopped.run(), 17))
    resumed.restore(snapshot(stopped), stopped.position)
    assert largest_difference(finish(resumed), whole) == 0


@by_inductor
@pytest.mark.slow
def test_a_compiled_trial_is_the_same_trial_to_the_store(
    remask: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    first = remask("run", *QUICK, "--method", "derpp", "--compile", "--workers", "1", "--json")
    assert first.code == 0, first.text
    assert json.loads(first.out)["ran"] is True
    again = remask("run", *QUICK, "--method", "derpp", "--json")
    assert json.loads(again.out)["ran"] is False
    assert any((tmp_path / "remask" / "compiled").iterdir())  # code, so in a folder of the user's
