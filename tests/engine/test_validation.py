"""Validation: training data that a trial holds out, never learns from, and is measured on."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from remask.config import TrialConfig
from remask.data.benchmark import Benchmark
from remask.data.classes import SplitError
from remask.data.tasks import Subset, hold_out
from remask.engine import TrialStack
from remask.methods import METHODS
from remask.nets.builders import NetBuilder
from remask.nets.progressive import ToldTask
from tests.engine.stack_samples import MakeConfig, batch_normed, finish, of_trial, small_mlp

SHARE = 0.25
SEEDS = (4, 0, 7)


def validated(config: MakeConfig, method: str, **changes: Any) -> list[TrialConfig]:
    return [config(method=method, seed=seed, validation=SHARE, **changes) for seed in SEEDS]


def stack_of(
    configs: list[TrialConfig], benchmark: Benchmark, build_net: NetBuilder = small_mlp
) -> TrialStack:
    return TrialStack(configs, benchmark, build_net=build_net)


def held_out_by(benchmark: Benchmark, seed: int, share: float = SHARE) -> Tensor:
    """The rows of the train set that a trial holds out."""
    _, held_out = hold_out(Subset(benchmark.train_labels), share, [seed])
    assert held_out is not None
    assert held_out.places is not None
    return held_out.places[0]


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (0.1, [1, 1, 1, 2, 2, 2]),
        (0.25, [2, 2, 3, 4, 5, 6]),
        (0.5, [4, 5, 6, 8, 10, 11]),
        (0.001, [1] * 6),
        (0.999, [6, 9, 12, 15, 18, 21]),
    ],
)
def test_every_class_holds_out_its_share_at_least_one_and_never_all(
    tiny: Benchmark, share: float, expected: list[int]
) -> None:
    """Classes have 7, 10, 13, 16, 19 and 22 samples; halves are rounded to even numbers."""
    learnt, held_out = hold_out(Subset(tiny.train_labels), share, SEEDS)
    assert held_out is not None
    assert torch.bincount(held_out.labels).tolist() == expected
    assert torch.bincount(learnt.labels).tolist() == [
        7 + 3 * label - out for label, out in enumerate(expected)
    ]


def test_a_sample_is_learnt_or_held_out_and_rows_have_one_label_in_all_trials(
    tiny: Benchmark,
) -> None:
    learnt, held_out = hold_out(Subset(tiny.train_labels), SHARE, SEEDS)
    assert held_out is not None
    assert learnt.places is not None
    assert held_out.places is not None
    for trial in range(len(SEEDS)):
        together = torch.cat([learnt.places[trial], held_out.places[trial]])
        assert together.sort().values.tolist() == list(range(len(tiny.train_labels)))
        assert torch.equal(tiny.train_labels[learnt.places[trial]], learnt.labels)
        assert torch.equal(tiny.train_labels[held_out.places[trial]], held_out.labels)


def test_the_seed_alone_decides_what_is_held_out(tiny: Benchmark) -> None:
    _, together = hold_out(Subset(tiny.train_labels), SHARE, SEEDS)
    assert together is not None
    assert together.places is not None
    for trial, seed in enumerate(SEEDS):
        assert torch.equal(together.places[trial], held_out_by(tiny, seed))
    assert len({tuple(rows.tolist()) for rows in together.places}) == len(SEEDS)


@pytest.mark.thorough
@pytest.mark.parametrize("method", METHODS)
def test_nothing_a_trial_learns_or_keeps_depends_on_what_it_held_out(
    method: str, config: MakeConfig, tiny: Benchmark
) -> None:
    """All that the first trial held out is painted white: nothing of it may leave a trace."""
    white = tiny.train_inputs.clone()
    white[held_out_by(tiny, SEEDS[0])] = 255
    configs = validated(config, method)
    plain = finish(stack_of(configs, tiny)).state()
    painted = finish(stack_of(configs, replace(tiny, train_inputs=white))).state()
    assert plain.keys() == painted.keys()
    for name in plain:
        own, same = (of_trial(name, state[name], 0, len(SEEDS)) for state in (plain, painted))
        if not name.startswith("metrics/validation"):
            torch.testing.assert_close(same, own, rtol=0, atol=0, equal_nan=True)
    # The others hold out other samples: some of what is white they have learnt.
    nets = [name for name in plain if name.startswith(("net/", "method/"))]
    assert any(not torch.equal(plain[n][1], painted[n][1]) for n in nets)


@pytest.mark.parametrize(
    ("method", "build_net"),
    [
        ("derpp", small_mlp),
        ("derpp", batch_normed),
        ("icarl", small_mlp),
        ("pnn", small_mlp),
        ("joint", small_mlp),
    ],
)
def test_the_accuracies_are_those_of_each_trial_s_net_on_what_it_held_out(
    method: str, build_net: NetBuilder, config: MakeConfig, tiny: Benchmark
) -> None:
    stack = finish(stack_of(validated(config, method), tiny, build_net))
    for trial, (seed, result) in enumerate(zip(SEEDS, stack.results(), strict=True)):
        net, rows = stack.net(trial).eval(), held_out_by(tiny, seed)
        labels, last = tiny.train_labels[rows], tiny.num_tasks - 1
        for task, classes in enumerate(tiny.tasks):
            of_task = rows[torch.isin(labels, torch.tensor(classes))]
            inputs, truth = tiny.train_inputs[of_task] / 255, tiny.train_labels[of_task]
            with torch.no_grad():
                scores = net(inputs, task) if isinstance(net, ToldTask) else net(inputs)
            told = torch.tensor(classes)[scores[:, list(classes)].argmax(1)]
            right = 100 * (told == truth).double().mean()
            assert result.validation_task_il[last][task] == pytest.approx(float(right))
            right = 100 * (scores.argmax(1) == truth).double().mean()
            shown = result.validation_class_il[last][task]
            assert shown == pytest.approx(np.nan if method == "pnn" else float(right), nan_ok=True)


def with_a_class_of_one(tiny: Benchmark) -> Benchmark:
    """Class 4, called "4", keeps one sample."""
    keep = (tiny.train_labels != 4).logical_or(
        torch.arange(len(tiny.train_labels)) == (tiny.train_labels == 4).nonzero()[0]
    )
    return replace(tiny, train_inputs=tiny.train_inputs[keep], train_labels=tiny.train_labels[keep])


def test_a_class_of_one_sample_is_refused_by_name(config: MakeConfig, tiny: Benchmark) -> None:
    small = with_a_class_of_one(tiny)
    with pytest.raises(SplitError, match=r"of tiny: '4' has one training sample"):
        stack_of([config(method="er", validation=0.1)], small)
    stack_of([config(method="er")], small)
