"""Accuracy within tasks: what is measured when, and that measuring changes nothing."""

from typing import Any

import pytest
import torch

from remask.data.benchmark import Benchmark
from remask.engine import DataDescription, TrialStack
from remask.engine.evaluation import measured_steps, samples_per_class
from remask.methods import METHODS
from remask.nets.builders import NetBuilder
from tests.engine.stack_samples import (
    MakeConfig,
    assert_same,
    batch_normed,
    finish,
    small_mlp,
    snapshot,
)

EVERY = 3
LENGTHS = (10, 8, 18)  # steps of the tasks of `tiny`, in two epochs of batches of 5
OF_CURVES = {"metrics/curve", "metrics/curve_points"}


def stack_of(
    config: MakeConfig,
    data: Benchmark | DataDescription,
    method: str = "derpp",
    net: NetBuilder = small_mlp,
    **changes: Any,
) -> TrialStack:
    masks = (None, None) if METHODS[method].unmaskable else (None, -1.0)
    settings = {"method": method, "evaluate_every": EVERY, **changes}
    configs = [config(seed=seed, mask=mask, **settings) for seed, mask in enumerate(masks)]
    return TrialStack(configs, data, build_net=net)


def test_a_task_is_measured_every_n_steps_and_at_its_end() -> None:
    assert measured_steps(10, 3, seen=1) == [3, 6, 9, 10]
    assert measured_steps(9, 3, seen=1) == [3, 6, 9]
    assert measured_steps(2, 3, seen=1) == [2]


@pytest.mark.parametrize("length", [1, 128, 129, 123_457])
@pytest.mark.parametrize("every", [1, 50])
@pytest.mark.parametrize("seen", [1, 6, 10_000])
def test_a_long_task_is_measured_at_multiples_of_n_so_that_curves_stay_small(
    length: int, every: int, seen: int
) -> None:
    steps = measured_steps(length, every, seen)
    assert steps[-1] == length
    assert all(step % every == 0 for step in steps[:-1])
    assert len(steps) <= 128
    assert len(steps) * seen <= max(640, seen)


def test_fewer_samples_of_each_class_are_measured_the_more_classes_there_are() -> None:
    assert [samples_per_class(n) for n in (2, 10, 20, 100, 1000)] == [25, 25, 12, 5, 5]


def test_the_curve_has_the_steps_of_the_stream_and_the_task_being_learnt(
    config: MakeConfig, tiny: Benchmark
) -> None:
    stack = finish(stack_of(config, tiny))
    curve = stack.results()[1].curve
    assert curve is not None
    steps = [3, 6, 9, 10, *(10 + s for s in (3, 6, 8)), *(18 + s for s in (3, 6, 9, 12, 15, 18))]
    assert list(curve.steps) == steps
    assert curve.learning == (0,) * 4 + (1,) * 3 + (2,) * 6
    assert stack.total_steps == sum(LENGTHS)
    for matrix in (torch.tensor(curve.class_il), torch.tensor(curve.task_il)):
        seen = torch.arange(3) <= torch.tensor(curve.learning).unsqueeze(-1)
        assert torch.equal(~matrix.isnan(), seen)


@pytest.mark.parametrize("method", ["derpp", "icarl", "joint", "pnn", "slda"])
def test_at_the_end_of_a_task_the_curve_is_what_evaluation_finds(
    config: MakeConfig, tiny: Benchmark, method: str
) -> None:
    """All test sets of `tiny` are small enough to be measured whole."""
    for result in finish(stack_of(config, tiny, method)).results():
        assert result.curve is not None
        ends = [
            point
            for point, task in enumerate(result.curve.learning)
            if [*result.curve.learning, None][point + 1] != task
        ]
        learnt = [result.curve.learning[point] for point in ends]
        for ours, theirs in (
            (result.curve.class_il, result.class_il),
            (result.curve.task_il, result.task_il),
        ):
            rows = torch.tensor([ours[point] for point in ends])
            expected = torch.tensor(theirs)[learnt]
            torch.testing.assert_close(rows, expected, rtol=0, atol=0, equal_nan=True)


def test_it_is_measured_on_the_first_samples_of_each_class(
    config: MakeConfig, digits: Benchmark
) -> None:
    """Of the digits' test set, which has more than 25 of each class."""
    chosen = torch.cat([(digits.test_labels == k).nonzero().flatten()[:25] for k in range(10)])
    stack = finish(stack_of(config, digits, benchmark="split-digits", epochs=1, batch=40))
    labels = digits.test_labels[chosen]
    expected = []
    for task in digits.tasks:
        own = torch.isin(labels, torch.tensor(task))
        rated = stack.scores(digits.test_inputs[chosen[own]] * digits.scale, 0)
        expected.append((rated.argmax(-1) == labels[own]).double().mean(-1) * 100)
    for trial, result in enumerate(stack.results()):
        assert result.curve is not None
        accuracies = [float(of_task[trial]) for of_task in expected]
        assert result.curve.class_il[-1] == pytest.approx(accuracies)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("method", "net"),
    [("derpp", small_mlp), ("icarl", small_mlp), ("pnn", small_mlp), ("er_ema", batch_normed)],
)
def test_measuring_changes_nothing_else(
    config: MakeConfig, tiny: Benchmark, method: str, net: NetBuilder
) -> None:
    measured = finish(stack_of(config, tiny, method, net, evaluate_every=1))
    plain = finish(stack_of(config, tiny, method, net, evaluate_every=0))
    state = snapshot(measured)
    assert state.keys() - snapshot(plain).keys() == OF_CURVES
    assert_same(snapshot(plain), {n: t for n, t in state.items() if n not in OF_CURVES})


# That it survives
