"""What trials cost, worked out: passes, FLOPs, and how stacks divide over workers."""

import json
from dataclasses import astuple
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from remask.data.benchmark import load_benchmark
from remask.engine import TrialStack
from remask.experiments import RunOptions
from remask.experiments.configs import trial_configs
from remask.experiments.cost import Sizes, cost_of, net_cost, shortest_time, step_passes
from remask.experiments.plans import rates_of, seconds_of
from remask.experiments.running import largest_stacks
from remask.methods import METHODS
from remask.nets.builders import net_builder


@pytest.mark.parametrize(
    ("net", "shape", "classes"), [("mlp", (1, 28, 28), 10), ("resnet18", (3, 32, 32), 10)]
)
def test_flops_of_a_forward_are_those_that_torch_counts(
    net: str, shape: tuple[int, ...], classes: int
) -> None:
    parameters, forward = net_cost(net, shape, classes)
    module = net_builder(net)(shape, classes)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module(torch.zeros(2, *shape))
    assert forward == counter.get_total_flops() / 2
    assert parameters == sum(parameter.numel() for parameter in module.parameters())


def test_the_cost_of_a_trial_can_be_worked_out_by_hand() -> None:
    (config,) = trial_configs(benchmark="split-mnist", method="derpp", buffer=5120, seeds=[0])
    cost = cost_of(config)
    # 60,000 samples in batches of 10, once; two draws of 64 beside each batch.
    assert cost.steps == 6000
    assert cost.passes.trained == 6000 * (10 + 2 * 64)
    # After each task the test samples so far, in tasks of 2,000; at the end all once more.
    assert cost.passes.evaluated == 2000 * (1 + 2 + 3 + 4 + 5) + 10_000
    forward = 2 * (784 * 100 + 100 * 100 + 100 * 10)
    assert cost.flops == forward * (3 * cost.passes.trained + cost.passes.evaluated)


def test_a_draw_is_no_larger_than_the_memory() -> None:
    (config,) = trial_configs(benchmark="split-mnist", method="derpp", buffer=10, seeds=[0])
    assert config.replay_batch > 10
    assert step_passes(config, 1, Sizes.of(config)).trained == config.batch + 2 * 10


@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_has_a_cost_and_takes_as_many_steps_as_it_says(method: str) -> None:
    (config,) = trial_configs(
        benchmark="split-digits",
        method=method,
        buffer=50 if METHODS[method].uses_buffer() else None,
        seeds=[0],
        overrides={"epochs": 2} if METHODS[method].trains_net else {},
    )
    cost = cost_of(config)
    stack = TrialStack([config], load_benchmark("split-digits"))
    # Its tasks are not quite of one size.
    assert cost.steps == pytest.approx(stack.total_steps, rel=0.05)
    assert cost.flops > 0
    assert min(astuple(cost.passes)) >= 0


def test_a_trial_on_data_that_is_not_there_has_a_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMASK_DATA", str(tmp_path))
    (config,) = trial_configs(benchmark="split-tiny-imagenet", method="er", buffer=500, seeds=[0])
    assert cost_of(config).flops > 1e15
    for device, trials in (("cpu", 1), ("cuda", 10)):
        options = RunOptions(device=device)
        lacking = [config.benchmark]
        assert largest_stacks([config], options, lacking=lacking) == {"resnet18": trials}


def test_rates_are_measured_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (config,) = trial_configs(benchmark="split-digits", method="er", seeds=[0])
    rates = rates_of(config, 2, RunOptions())
    (file,) = (tmp_path / "remask" / "rates").iterdir()
    assert seconds_of(config, rates) > 0
    file.write_text(json.dumps({**json.loads(file.read_text()), "call": 7.0}))
    assert rates_of(config, 2, RunOptions()).call == 7.0
    file.write_text("{}")
    assert rates_of(config, 2, RunOptions()).call < 1.0, "what cannot be read is measured again"


@pytest.mark.parametrize(
    ("stacks", "workers", "expected"),
    [([3, 3, 3], 1, 9), ([3, 3, 3], 2, 6), ([5, 1, 1, 1], 2, 5), ([5, 1], 100, 5), ([], 3, 0)],
)
def test_no_number_of_workers_is_faster_than_the_longest_stack(
    stacks: list[float], workers: int, expected: float
) -> None:
    assert shortest_time(stacks, workers) == expected


def test_methods_that_the_kernel_cannot_run_have_rates_of_their_own() -> None:
    """Their steps are taken in torch, and take several times as long."""
    compiled, in_torch = (
        trial_configs(benchmark="split-mnist", method=method, buffer=200, seeds=[0])[0]
        for method in ("er", "hal")
    )
    kernel, torch = (rates_of(config, 2, RunOptions()) for config in (compiled, in_torch))
    assert seconds_of(compiled, torch) > 1.5 * seconds_of(compiled, kernel)
