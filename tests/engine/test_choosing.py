"""Trials whose mask is "auto": candidates side by side, and which of them goes on."""

import math
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from remask.data.benchmark import Benchmark
from remask.data.tasks import Subset, hold_out
from remask.engine import DataDescription, StreamError, TrialStack, choosing
from remask.engine.choosing import (
    SHARE_APART,
    candidates_of,
    choice,
    concrete_configs,
    held_out_places,
)
from remask.nets.builders import NetBuilder
from tests.engine.stack_samples import (
    MakeConfig,
    batch_normed,
    finish,
    small_mlp,
    snapshot,
    task_of,
)

BUFFER, SEEDS = 1000, (3, 1)
COUNT = len(candidates_of(BUFFER))
SHARED = ("stream/counts", "stream/steps", "choices/")
masked_methods = pytest.mark.parametrize("method", ["er", "derpp", "er_ema"])


def auto_stack(
    config: MakeConfig,
    source: Benchmark | DataDescription,
    build_net: NetBuilder = small_mlp,
    **changes: Any,
) -> TrialStack:
    asked = {"mask": "auto", "buffer": BUFFER, "method": "er_ema", **changes}
    configs = [config(seed=seed, **asked) for seed in SEEDS]
    return TrialStack(configs, source, build_net=build_net)


def of_networks(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """What each network has for itself, [S, C, ...]."""
    return {
        name: tensor.nan_to_num(-1).reshape(len(SEEDS), COUNT, -1)
        for name, tensor in state.items()
        if not name.startswith(SHARED) and tensor.numel()
    }


def same(one: dict[str, Tensor], other: dict[str, Tensor], *parts: str) -> bool:
    assert one.keys() == other.keys()
    names = [name for name in one if name.startswith(parts or ("",))]
    assert names
    return all(torch.equal(one[n].nan_to_num(-1), other[n].nan_to_num(-1)) for n in names)


@pytest.fixture
def _leave_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Choose what differs most from the default, whichever is better."""
    monkeypatch.setattr(choosing, "Z", -1e9)


leaving_the_default = pytest.mark.usefixtures("_leave_the_default")


def test_the_rule_weighs_every_class_alike_and_asks_for_more_than_one_standard_deviation() -> None:
    """Class 0 has four samples and class 1 two: weights of 12.5 and 25 percent."""
    labels = np.array([0, 0, 0, 0, 1, 1])
    default = [True, True, False, False, True, False]
    one_more = [True, True, True, False, True, False]
    two_more = [True, True, True, True, True, False]
    right = np.array([default, one_more, two_more])
    chosen, scores, errors = choice(right, labels, np.array([True, True, True]))
    assert scores.tolist() == [50.0, 62.5, 75.0]
    assert errors.tolist() == pytest.approx([0, 12.5, 12.5 * math.sqrt(2)])
    assert chosen == 2  # 25 - 17.7 is above 0; 12.5 - 12.5 is not
    assert choice(right[:2], labels, np.array([True, True]))[0] == 0


def test_a_candidate_that_has_diverged_is_never_chosen_not_even_the_default() -> None:
    labels, right = np.array([0, 1]), np.array([[False, False], [True, False], [True, True]])
    assert choice(right, labels, np.array([True, True, False]))[0] == 0
    assert choice(right, labels, np.array([False, True, False]))[0] == 1
    assert choice(right, labels, np.array([False, False, False]))[0] == 0


@masked_methods
def test_before_the_first_choice_candidates_are_the_fixed_trials_that_they_name(
    method: str, config: MakeConfig, tiny: Benchmark
) -> None:
    auto = auto_stack(config, tiny, method=method)
    fixed = TrialStack(
        [
            # Such a trial holds out the same samples, by the same random numbers.
            concrete.model_copy(update={"validation": SHARE_APART})
            for concrete in concrete_configs(auto.configs)
        ],
        tiny,
        build_net=small_mlp,
    )
    for stack in (auto, fixed):
        for _ in islice(stack.run(), 4):
            pass
    assert auto.position == fixed.position
    names = [name for name in fixed.state() if name.startswith(("net/", "method/", "memory/"))]
    assert all(torch.equal(auto.state()[name], fixed.state()[name]) for name in names)
    weights = auto.state()["net/1.weight"]
    last = len(weights) // len(SEEDS) - 1
    assert not torch.equal(weights[0], weights[last])  # or this would prove nothing


@leaving_the_default
@pytest.mark.parametrize(
    ("method", "build_net"),
    [("er", small_mlp), ("derpp", small_mlp), ("er_ema", small_mlp), ("er_ema", batch_normed)],
)
def test_after_a_choice_all_candidates_have_what_the_chosen_one_had(
    method: str, build_net: NetBuilder, config: MakeConfig, tiny: Benchmark
) -> None:
    stack = auto_stack(config, tiny, build_net, method=method)
    for task in stack.tasks:
        for _ in stack.learn_steps(task):
            before = of_networks(snapshot(stack))
        after = of_networks(snapshot(stack))
        names = [candidate.name for candidate in candidates_of(BUFFER)]
        for trial, made in enumerate(stack.choices):
            number = names.index(made[-1].chosen)
            for name, tensor in after.items():
                for candidate in tensor[trial]:
                    assert torch.equal(candidate, before[name][trial, number]), name
    assert {made.chosen for trial in stack.choices for made in trial} != {names[0]}


@masked_methods
def test_a_memory_too_small_to_hold_samples_out_gives_the_default_bit_for_bit(
    method: str, config: MakeConfig, tiny: Benchmark
) -> None:
    auto = auto_stack(config, tiny, method=method, buffer=12)
    (default,) = candidates_of(12)
    fixed = TrialStack(
        [default.config(asked, asked.buffer) for asked in auto.configs], tiny, build_net=small_mlp
    )
    finish(auto), finish(fixed)
    own = {name: t for name, t in auto.state().items() if not name.startswith("choices/")}
    assert same(own, fixed.state())
    assert [made.chosen for made in auto.choices[0]] == [default.name] * 3
    assert "too small" in auto.choices[0][0].reason


def changed(benchmark: Benchmark, part: str, rows: Tensor) -> Benchmark:
    """The benchmark with other inputs in some rows."""
    inputs = getattr(benchmark, part).clone()
    inputs[rows] = 255 - inputs[rows]
    return replace(benchmark, **{part: inputs})


@leaving_the_default
def test_neither_test_data_nor_later_tasks_have_a_say(config: MakeConfig, tiny: Benchmark) -> None:
    stack = finish(auto_stack(config, tiny))
    every = torch.arange(len(tiny.test_labels))
    poisoned = finish(auto_stack(config, changed(tiny, "test_inputs", every)))
    assert same(stack.state(), poisoned.state(), "net/", "method/", "memory/", "choices/")
    assert not same(stack.state(), poisoned.state(), "metrics/test")
    stack, later = (
        auto_stack(config, benchmark)
        for benchmark in (tiny, changed(tiny, "train_inputs", tiny.train_indices(2)))
    )
    for each in (stack, later):
        for task in each.tasks[:2]:
            each.learn(task)
    assert same(stack.state(), later.state())


def held_out_rows(benchmark: Benchmark) -> Tensor:
    """What some trial holds out."""
    _, apart = hold_out(Subset(benchmark.train_labels), SHARE_APART, SEEDS)
    assert apart is not None
    assert apart.places is not None
    return apart.places


def test_what_is_held_out_is_never_learnt_from(
    config: MakeConfig, tiny: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "Z", 1e9)  # keep the default
    apart = held_out_rows(tiny)
    learnt_by_all = torch.ones(len(tiny.train_labels), dtype=torch.bool)
    learnt_by_all[apart.flatten()] = False
    stack = finish(auto_stack(config, tiny))
    first = len(stack.state()["net/1.weight"]) // len(SEEDS)
    # Each trial learns what the other holds out, so only the first one's part stays the same.
    others = finish(auto_stack(config, changed(tiny, "train_inputs", apart[0])))
    for name, tensor in stack.state().items():
        if name.startswith("net/"):
            assert torch.equal(tensor[:first], others.state()[name][:first])
    assert not same(stack.state(), others.state(), "choices/inputs")
    some = learnt_by_all.nonzero()[:1].squeeze(1)
    learnt = finish(auto_stack(config, changed(tiny, "train_inputs", some)))
    assert not same(stack.state(), learnt.state(), "net/")


def test_replay_and_held_out_samples_together_fill_no_more_than_the_buffer(
    config: MakeConfig, digits: Benchmark
) -> None:
    asked = config(
        benchmark="split-digits", method="er", mask="auto", buffer=BUFFER, epochs=1, net="mlp"
    )
    stack = finish(TrialStack([asked], digits))
    replayed = len(stack.state()["memory/labels"]) // COUNT
    held = stack.state()["choices/labels"]
    assert replayed + len(held) == BUFFER
    assert len(held) == held_out_places(BUFFER) == 50
    assert torch.bincount(held).tolist() == [5] * 10  # as many of each class
    assert [made.old_samples for made in stack.choices[0]] == [0, 14, 28, 42, 50]


@leaving_the_default
def test_a_result_says_what_was_chosen_by_how_many_samples_and_why(
    config: MakeConfig, tiny: Benchmark
) -> None:
    stack = auto_stack(config, tiny)
    assert stack.choices == [(), ()]
    results = finish(stack).results()
    names = [candidate.name for candidate in candidates_of(BUFFER)]
    assert [len(result.choices) for result in results] == [3, 3]
    assert [result.choices for result in results] == stack.choices
    held_out = [2, 1, 3]  # one of each class, which the memory then keeps
    for result in results:
        assert result.config.mask == "auto"
        for number, made in enumerate(result.choices):
            assert list(made.scores) == list(made.errors) == names
            assert made.old_samples == sum(held_out[:number])
            assert made.samples == sum(held_out[: number + 1])
            ahead = made.scores[made.chosen] - made.scores[names[0]]
            if made.chosen != names[0]:
                assert f"{ahead:.1f} ±" in made.reason


@leaving_the_default
def test_the_net_that_is_taken_out_is_that_of_the_chosen_candidate(
    config: MakeConfig, tiny: Benchmark
) -> None:
    stack = auto_stack(config, tiny)
    for _ in islice(stack.run(), stack.total_steps - 3):  # in a task, where candidates differ
        pass
    inputs = tiny.test_inputs.float() / 255
    scores = stack.scores(inputs, 0)
    assert scores.shape[0] == len(SEEDS)
    for trial in range(len(SEEDS)):
        torch.testing.assert_close(stack.net(trial)(inputs), scores[trial])


def learn_open(stack: TrialStack, benchmark: Benchmark, tasks: range) -> None:
    for number in tasks:
        stack.learn(task_of(stack, benchmark, number))


@leaving_the_default
def test_an_open_stream_chooses_goes_on_after_a_restore_and_takes_more_samples_to_choose_on(
    config: MakeConfig, tiny: Benchmark
) -> None:
    data = DataDescription.of(tiny)
    whole, left, told = (auto_stack(config, data) for _ in range(3))
    learn_open(whole, tiny, range(3))
    learn_open(left, tiny, range(2))
    again = auto_stack(config, data)
    again.restore(snapshot(left), left.position)
    learn_open(again, tiny, range(2, 3))
    assert same(whole.state(), again.state())
    assert whole.choices == again.choices

    told.restore(snapshot(left), left.position)
    old = tiny.test_indices(0)
    told.choose_on(tiny.test_inputs[old], tiny.test_labels[old])
    learn_open(told, tiny, range(2, 3))
    made, more = whole.choices[0][2], told.choices[0][2]
    assert more.old_samples == made.old_samples + len(old)
    assert more.samples == made.samples + len(old)


def test_samples_to_choose_on_are_refused_where_nothing_is_chosen_or_they_do_not_fit(
    config: MakeConfig, tiny: Benchmark
) -> None:
    fixed = TrialStack([config()], tiny, build_net=small_mlp)
    with pytest.raises(StreamError, match="auto"):
        fixed.choose_on(tiny.test_inputs, tiny.test_labels)
    with pytest.raises(StreamError, match="held-out inputs must be"):
        auto_stack(config, tiny).choose_on(tiny.test_inputs[:, :, :2], tiny.test_labels)
