"""Compiled steps: the same as torch's, and the same bits however they are called."""

import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from remask.data.benchmark import Benchmark
from remask.engine import TrialStack, compiled, compiling
from remask.engine.loss_log import LossLog
from remask.methods import ER, METHODS
from remask.methods.step import Step, Term
from remask.nets.builders import mlp
from tests.engine.stack_samples import MakeConfig, assert_same, finish, small_mlp, snapshot

pytest.importorskip("numba")

COMPILED = [
    *("agem", "der", "derpp", "er", "er_ace", "er_ema", "er_las", "gem", "joint", "lode", "sgd")
]
CLOSE = 1e-5
"""The largest difference in weights between the kernel and torch after a short run."""

CASES: dict[str, dict[str, Any]] = {
    **{name: {"method": name} for name in COMPILED},
    "-inf": {"mask": float("-inf")},
    "finite mask, stored": {"mask": -1.0, "mask_stored": True},
    "fading mask": {"method": "er", "mask": -1.0, "fade": 3.0},
    "fading mask, DER++": {"mask": float("-inf"), "fade": 3.0, "fade_power": 2.0},
    "task-free": {"mask": -1.0, "task_free": True},
    "balanced": {"memory": "balanced"},
    "learning rate drops": {"lr_drops": (1,)},
}


def make(config: MakeConfig, benchmark: Benchmark, trials: int = 3, **changes: Any) -> TrialStack:
    method = METHODS[changes.get("method", "derpp")]
    sizes = {} if method.uses_buffer() else {"buffer": 0}
    sizes |= {} if method.uses_replay_batch() else {"replay_batch": 0}
    configs = [config(**sizes | changes, seed=seed) for seed in range(trials)]
    return TrialStack(configs, benchmark, build_net=small_mlp)


def in_torch(monkeypatch: pytest.MonkeyPatch, run: Callable[[], TrialStack]) -> TrialStack:
    with monkeypatch.context() as patch:
        patch.setenv("REMASK_ENGINE", "torch")
        return run()


def engine(stack: TrialStack) -> object:
    return stack.results()[0].machine["engine"]


def parameters(stack: TrialStack) -> Tensor:
    return torch.cat([t.detach().flatten(1) for n, t in stack.state().items() if n[:3] == "net"], 1)


@pytest.mark.parametrize(
    ("kind", "sparse"), [(torch.uint8, False), (torch.uint8, True), (torch.float32, False)]
)
def test_the_kernel_agrees_with_autograd_in_float64(kind: torch.dtype, sparse: bool) -> None:
    kernel = compiling.kernel_for(kind)
    assert kernel is not None
    assert compiling.difference(kernel, kind, sparse=sparse) < 1e-6


@pytest.mark.parametrize("name", CASES)
def test_compiled_steps_agree_with_torch(
    config: MakeConfig, tiny: Benchmark, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def run() -> TrialStack:
        stack = make(config, tiny, lr=0.05, **CASES[name])
        stack.finish()
        return stack

    ours, theirs = run(), in_torch(monkeypatch, run)
    assert (engine(ours), engine(theirs)) == ("kernel", "torch")
    assert (parameters(ours) - parameters(theirs)).abs().max() < CLOSE
    assert ours.results()[0].class_il == theirs.results()[0].class_il
    for one, other in zip(ours.state().items(), theirs.state().items(), strict=True):
        if one[0].startswith(("memory/", "method/")):
            torch.testing.assert_close(one[1], other[1], atol=1e-4, rtol=0, msg=one[0])


def test_losses_and_their_terms_are_logged_as_in_torch(
    config: MakeConfig, tiny: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run() -> TrialStack:
        configs = [config(seed=seed, mask=-1.0, fade=2.0) for seed in range(2)]
        stack = TrialStack(configs, tiny, build_net=small_mlp, log=LossLog(3))
        stack.finish()
        return stack

    ours, theirs = (stack.results()[1].losses for stack in (run(), in_torch(monkeypatch, run)))
    assert ours is not None
    assert theirs is not None
    assert (ours.names, ours.steps) == (theirs.names, theirs.steps)
    assert set(ours.names) == {"loss", "stream", "distillation", "replay"}
    np.testing.assert_allclose(ours.values, theirs.values, rtol=1e-3)


@pytest.mark.parametrize(
    "name", ["agem", "balanced", "derpp", "er_ace", "er_ema", "gem", "task-free"]
)
def test_bits_depend_neither_on_company_nor_on_pace_or_interruptions(
    config: MakeConfig, tiny: Benchmark, name: str
) -> None:
    together = make(config, tiny, **CASES[name])
    together.finish()
    alone = finish(TrialStack([together.configs[1]], tiny, build_net=small_mlp))  # step by step
    assert torch.equal(parameters(alone)[0], parameters(together)[1])
    stopped = make(config, tiny, **CASES[name])
    for _ in islice(stopped.run(), 7):
        pass
    resumed = make(config, tiny, **CASES[name])
    resumed.restore(snapshot(stopped), stopped.position)
    resumed.finish()
    assert_same(snapshot(resumed), snapshot(together))


def test_skipping_zeros_changes_no_bits(
    config: MakeConfig, digits: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for dense in (0.0, 1.1):
        monkeypatch.setattr(compiled, "_DENSE", dense)
        options = {"benchmark": "split-digits", "mask": -1.0, "epochs": 1}
        configs = [config(**options, seed=seed) for seed in (0, 1)]
        stack = TrialStack(configs, digits, build_net=mlp)
        stack.learn(stack.tasks[0])
        stack.evaluate()
        found.append(snapshot(stack))
    assert_same(*found)


def test_threads_of_a_stack_change_no_bits(
    config: MakeConfig, tiny: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for threads in (1, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        stack = make(config, tiny)
        stack.finish()
        found.append(snapshot(stack))
    assert_same(*found)


def test_threads_that_train_side_by_side_get_the_same_bits(
    config: MakeConfig, tiny: Benchmark
) -> None:
    def run(seed: int) -> Tensor:
        stack = TrialStack([config(seed=seed)], tiny, build_net=small_mlp)
        stack.finish()
        return parameters(stack)

    one_by_one = [run(seed) for seed in range(6)]
    with ThreadPoolExecutor(6) as pool:
        for own, other in zip(one_by_one, pool.map(run, range(6)), strict=True):
            assert torch.equal(own, other)


def test_normalised_float_inputs_and_one_layer(
    config: MakeConfig, tiny_benchmark: Callable[..., Benchmark], monkeypatch: pytest.MonkeyPatch
) -> None:
    bytes_ = tiny_benchmark(shape=(2, 3, 3))
    floats = replace(
        bytes_,
        train_inputs=bytes_.train_inputs.float(),
        test_inputs=bytes_.test_inputs.float(),
        mean=(0.4, 0.5),
        std=(0.3, 0.2),
    )

    def linear(shape: tuple[int, ...], classes: int) -> nn.Module:
        return mlp(shape, classes, hidden=())

    def run() -> TrialStack:
        stack = TrialStack([config(lr=0.01)], floats, build_net=linear)
        stack.finish()
        return stack

    ours, theirs = run(), in_torch(monkeypatch, run)
    assert engine(ours) == "kernel"
    assert (parameters(ours) - parameters(theirs)).abs().max() < CLOSE


class Looking(ER):
    """Terms that look at logits cannot be computed before a step."""

    def terms(self, step: Step) -> list[Term]:
        weight = step.stream.logits.detach().mean((1, 2)).exp()
        return [term._replace(weight=weight) for term in super().terms(step)]


class Silenced(ER):
    """A term whose targets are not stored ones."""

    def terms(self, step: Step) -> list[Term]:
        zeros = torch.zeros(*step.stream.labels.shape, 6)
        return [*super().terms(step), Term(step.stream, 0.1, stored=zeros)]


class Doubled(ER):
    """Own terms that can."""

    def terms(self, step: Step) -> list[Term]:
        return [term._replace(weight=2.0) for term in super().terms(step)]


def with_tanh(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(*mlp(shape, classes, hidden=(8,)).children(), nn.Tanh())


@pytest.mark.parametrize(
    ("method", "build", "expected"),
    [
        (Looking, small_mlp, "torch"),
        (Silenced, small_mlp, "torch"),
        (Doubled, small_mlp, "kernel"),
        (ER, with_tanh, "torch"),
    ],
)
def test_what_the_kernel_cannot_do_is_done_in_torch(
    config: MakeConfig, tiny: Benchmark, method: Any, build: Any, expected: str
) -> None:
    stack = TrialStack([config(method="own")], tiny, method=method, build_net=build)
    stack.finish()
    assert engine(stack) == expected


@pytest.fixture
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_kernels", {})


@pytest.mark.usefixtures("_forgotten")
def test_a_kernel_that_disagrees_is_not_used_and_one_warning_says_so(
    config: MakeConfig, tiny: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "difference", lambda *_, **__: 0.5)
    with pytest.warns(RuntimeWarning, match=r"off by 0\.5"):
        stack = TrialStack([config()], tiny, build_net=small_mlp)
    with warnings.catch_warnings(action="error"):
        TrialStack([config()], tiny, build_net=small_mlp)
    stack.finish()
    assert engine(stack) == "torch"


@pytest.mark.usefixtures("_forgotten")
def test_without_numba_everything_runs_in_torch(
    config: MakeConfig, tiny: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "find_spec", lambda name: None)
    stack = TrialStack([config()], tiny, build_net=small_mlp)
    stack.finish()
    assert engine(stack) == "torch"
