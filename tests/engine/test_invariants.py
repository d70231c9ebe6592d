"""A trial ends with the same bits alone, in a stack, resumed, and resumed in another process.

Every method goes through these tests, and every feature that adds state; a new one adds a case.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from remask.config import TrialConfig
from remask.data.benchmark import Benchmark
from remask.engine import TrialStack
from remask.engine.loss_log import LossLog
from remask.methods import METHODS
from remask.nets.builders import NetBuilder
from tests.engine.stack_samples import (
    MakeConfig,
    assert_same,
    batch_normed,
    channels_last_net,
    finish,
    measured,
    small_mlp,
    small_resnet,
    snapshot,
)
from tests.engine.test_stacking import FunctionalDropout

INF = float("inf")
SHARED = ("choices/labels", "metrics/curve_points")  # by all trials of a stack


def with_dropout(shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return nn.Sequential(small_mlp(shape, num_classes), nn.Dropout(0.3))


def with_functional_dropout(shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return nn.Sequential(small_mlp(shape, num_classes), FunctionalDropout())


class Case(NamedTuple):
    """Trials of one feature."""

    method: str
    settings: Mapping[str, Any] = MappingProxyType({})
    net: NetBuilder = small_mlp
    images: bool = False
    optimizer: Any = "sgd"
    logs: bool = False
    tolerance: float = 0.0
    """Nets under vmap round differently from a single net; all others have the same bits."""

    def stack(
        self, configs: list[TrialConfig], benchmark: Benchmark, device: str = "cpu"
    ) -> TrialStack:
        log = LossLog(3) if self.logs else None
        how: dict[str, Any] = {"optimizer": self.optimizer, "log": log, "device": device}
        return TrialStack(configs, benchmark, build_net=self.net, **how)


CASES = {
    **{
        method: Case(method, tolerance=1e-5 if method.startswith("pnn") else 0.0)
        for method in METHODS
    },
    "two epochs": Case("derpp", {"epochs": 2, "lr_drops": (1,)}),
    "er, batch statistics": Case("er", net=batch_normed),
    "derpp, batch statistics": Case("derpp", net=batch_normed),
    "icarl, batch statistics": Case("icarl", net=batch_normed),
    "si, batch statistics": Case("si", net=batch_normed),
    "er_ema, batch statistics": Case("er_ema", net=batch_normed),
    "gss, batch statistics": Case("gss", net=batch_normed, tolerance=1e-4),
    "dropout": Case("er", net=with_dropout),
    "dropout as a function": Case("er", net=with_functional_dropout),
    "bf16": Case("er", {"precision": "bf16"}, tolerance=0.02),
    "validation": Case("er", {"validation": 0.2}),
    "curves": Case("derpp", {"evaluate_every": 3}),
    "curves at the end of icarl": Case("icarl", {"evaluate_every": 4, "validation": 0.2}),
    "curves of joint": Case("joint", {"evaluate_every": 4}),
    "balanced": Case("derpp", {"memory": "balanced"}),
    "merging": Case("derpp", {"memory": "merging", "buffer": 2, "epochs": 2}),
    "fading": Case("er", {"fade": 2.0, "fade_power": 1.5, "mask": -1.0}),
    "task-free": Case("er", {"task_free": True}),
    "stored mask": Case("derpp", {"mask_stored": True, "mask": -1.0}),
    "auto": Case("derpp", {"mask": "auto", "buffer": 1000}),
    "auto, too small": Case("er", {"mask": "auto"}),
    "adamw": Case("er_ema", optimizer="adamw"),
    "log": Case("derpp", logs=True),
    "log of auto": Case("er", {"mask": "auto", "buffer": 1000}, logs=True),
    "augmented": Case("derpp", {"batch": 6}, channels_last_net, images=True),
    "resnet": Case("er", {"lr": 1e-3, "batch": 6}, small_resnet, images=True, tolerance=0.01),
    "pnn of resnets": Case(
        "pnn", {"lr": 1e-3, "batch": 6}, small_resnet, images=True, tolerance=0.01
    ),
}


@pytest.fixture(params=CASES.values(), ids=list(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture
def benchmark(case: Case, tiny: Benchmark, images: Benchmark) -> Benchmark:
    return images if case.images else tiny


@pytest.fixture
def configs(case: Case, config: MakeConfig) -> list[TrialConfig]:
    """Two trials that differ in all that trials of one stack may differ in."""
    masks = (None, None) if METHODS[case.method].unmaskable else (-1.0, -INF)
    return [
        config(
            **{"method": case.method, "epochs": 1, "seed": seed, "mask": mask, "lr": lr}
            | {"alpha": 0.2 + 0.1 * seed, "beta": 0.9 - 0.1 * seed}
            | dict(case.settings)
        )
        for seed, mask, lr in zip((4, 0), masks, (0.1, 0.05), strict=True)
    ]


def of_trial(name: str, tensor: Tensor, trial: int) -> Tensor:
    """One of two trials' part of a tensor [S, ...], [S * M, ...] or [S * C, ...]."""
    if name in SHARED:
        return tensor
    return tensor.view(2, len(tensor) // 2, *tensor.shape[1:])[trial]


def test_a_trial_is_the_same_alone_and_in_a_stack(
    case: Case, configs: list[TrialConfig], benchmark: Benchmark
) -> None:
    stack = finish(case.stack(configs, benchmark))
    state, shown = stack.state(), measured(stack)
    for trial, single in enumerate(configs):
        alone = finish(case.stack([single], benchmark))
        if not case.tolerance:
            assert measured(alone) == [shown[trial]]
        for name, tensor in alone.state().items():
            rounded = case.tolerance and name.startswith("metrics/")  # a sample may change sides
            if not name.startswith("log/") and not rounded:
                own = of_trial(name, state[name], trial).reshape(tensor.shape)
                bound = case.tolerance
                torch.testing.assert_close(
                    own, tensor, rtol=bound, atol=bound, equal_nan=True, msg=name
                )


def advance(stack: TrialStack, steps: int) -> None:
    for done, _ in enumerate(stack.run(), start=1):
        if done == steps:
            return


def test_a_resumed_run_ends_bit_identical(
    case: Case, configs: list[TrialConfig], benchmark: Benchmark
) -> None:
    whole = finish(case.stack(configs, benchmark))
    stack = case.stack(configs, benchmark)
    # Within a task, after its last step, after its evaluation, and within a later one.
    for steps in (2, 3, 1, 5):
        advance(stack, steps)
        state, position = snapshot(stack), stack.position
        stack = case.stack(configs, benchmark)
        stack.restore(state, position)
        assert stack.position == position
    finish(stack)
    assert stack.position == whole.position
    assert_same(snapshot(whole), snapshot(stack))
    assert measured(stack) == measured(whole)


WITHOUT_WAITING = ["er", "derpp", "agem", "oewc", "validation", "curves", "merging"]


@pytest.mark.parametrize(
    "case", [CASES[name] for name in WITHOUT_WAITING], ids=WITHOUT_WAITING, indirect=True
)
def test_no_step_waits_for_the_host(
    case: Case, configs: list[TrialConfig], tiny: Benchmark
) -> None:
    """The meta device has no data: reading a value fails."""
    stack = case.stack(configs, tiny, device="meta")
    steps = 4 * configs[0].epochs  # all but one, or with "merging" far enough to merge
    for _ in islice(stack.learn_steps(stack.tasks[0]), steps):
        pass
    assert stack.steps_done == steps


IN_ANOTHER_PROCESS = """\
import pickle, sys
import torch
from remask.engine import Position, TrialStack
from remask.methods import hal
from tests.engine.stack_samples import MakeConfig, finish, snapshot

hal._STEPS_ON_ANCHORS = 5  # as in all tests of the engine
torch.set_num_threads(1)
given = pickle.load(sys.stdin.buffer)
ends = {}
for method, (configs, benchmark, state, position) in given.items():
    stack = TrialStack(configs, benchmark)
    stack.restore(state, Position(*position))
    ends[method] = snapshot(finish(stack))
pickle.dump(ends, sys.stdout.buffer)
"""


@pytest.mark.processes
def test_every_method_resumes_in_another_process_with_the_same_bits(
    config: MakeConfig, tiny: Benchmark, repository: Path
) -> None:
    whole, given = {}, {}
    for method in METHODS:
        configs = [config(method=method, net="mlp", seed=seed, epochs=1) for seed in (3, 5)]
        stack = TrialStack(configs, tiny)
        advance(stack, 8)
        given[method] = (configs, tiny, snapshot(stack), tuple(stack.position))
        whole[method] = snapshot(finish(stack))
    child = subprocess.run(
        [sys.executable, "-c", IN_ANOTHER_PROCESS],
        input=pickle.dumps(given),
        stdout=subprocess.PIPE,
        check=True,
        cwd=repository,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    for method, ends in pickle.loads(child.stdout).items():
        assert_same(whole[method], ends)
