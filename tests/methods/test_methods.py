"""Every method against a slow one; what methods are made of; their settings and names."""

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from remask.data.benchmark import Benchmark
from remask.engine import TrialStack
from remask.errors import SettingsError, UnknownNameError
from remask.experiments.configs import trial_configs
from remask.memory import choose_rows, herd
from remask.methods import MASKED_NAMES, METHODS, find_method
from remask.methods.gem import solve
from remask.metrics import forgetting
from remask.names import SUMMARIES, TITLES, Systems, systems_named
from tests.engine.stack_samples import MASKS, MakeConfig, finish, small_mlp, three_trials
from tests.methods.slow import (
    INF,
    SLOW,
    Floats,
    SlowFDR,
    assert_same_outcome,
    run_noted,
    slow_herd,
    solve_by_trial,
)

NOT_SLOW = {
    "joint": "SGD on all tasks at once",
    "pnn": "has nets of its own: test_pnn",
    "pnn-independent": "has nets of its own: test_pnn",
    **dict.fromkeys(["ncm", "slda", "ridge"], "takes no steps: test_closed_form"),
}
"""The methods without a slow twin here, and why."""


def test_every_method_has_a_slow_reference_or_a_reason_to_have_none() -> None:
    assert SLOW.keys().isdisjoint(NOT_SLOW)
    assert {*SLOW, *NOT_SLOW} == METHODS.keys()


HAPPENS: dict[str, set[str]] = {
    "si": {"clipped"},
    "icarl-dark": {"darkened"},
    "gem": {"turned", "beyond the margin", "left alone"},
    "agem": {"projected", "left alone"},
    "gss": {"replaced", "turned away", "not looked at"},
    "mir": {"retrieved"},
    "er_ema": {"averaged", "averaged plainly"},
    "cls_er": {"plastic teaches", "stable teaches", "plastic waits", "stable waits"},
    "er_las": {"not in this step"},
}
"""What must have happened in a run that is to tell right from wrong."""


@pytest.mark.thorough
@pytest.mark.parametrize("method", SLOW)
def test_a_method_equals_a_slow_one_alone_and_in_a_stack(
    method: str, config: MakeConfig, tiny: Benchmark
) -> None:
    configs = three_trials(config, method)
    if method == "er_las":  # windows of other lengths, side by side
        configs[1] = configs[1].model_copy(update={"weights": (("tau", 1.0), ("window", 1.0))})
    stack, chance = run_noted(configs, tiny)
    happened: Counter[str] = Counter()
    for trial, own in enumerate(configs):
        slow = SLOW[method](own, tiny, chance.of_trial(trial))
        slow.run()
        assert_same_outcome(stack, trial, slow)
        if trial == 0:
            assert_same_outcome(finish(TrialStack([own], tiny, build_net=small_mlp)), 0, slow)
        happened += slow.happened
    assert happened.keys() >= HAPPENS.get(method, set())


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("method", "changes"),
    [
        # Room for more samples than a task, or a class, has.
        ("gem", {"buffer": 66}),
        ("agem", {"buffer": 66}),
        ("icarl", {"buffer": 60}),
        ("fdr", {"buffer": 60}),
        # Both draws are of one sample.
        ("derpp", {"buffer": 1}),
        # A first batch that does not fit; a later one whose rest may take the place of others.
        ("gss", {"buffer": 4}),
        ("gss", {"buffer": 27}),
        # The learning rate of the moment, wherever a method uses it.
        ("si", {"lr_drops": (1,)}),
        ("lwf", {"lr_drops": (1,)}),
        ("fdr", {"lr_drops": (1,)}),
        ("hal", {"lr_drops": (1,)}),
    ],
)
def test_a_method_equals_a_slow_one_in_odd_settings(
    method: str, changes: dict[str, Any], config: MakeConfig, tiny: Benchmark
) -> None:
    (single,) = three_trials(config, method, **changes)[1:2]
    stack, chance = run_noted([single], tiny)
    slow = SLOW[method](single, tiny, chance.of_trial(0))
    slow.run()
    assert_same_outcome(stack, 0, slow)


def test_fdr_equals_a_slow_one_under_a_mask_of_minus_infinity(
    config: MakeConfig, tiny_benchmark: Callable[..., Benchmark]
) -> None:
    benchmark = tiny_benchmark(((3, 0), (4, 1), (2, 5)))
    single = config(method="fdr", mask=-INF)
    stack, chance = run_noted([single], benchmark)
    slow = SlowFDR(single, benchmark, chance.of_trial(0))
    slow.run()
    assert_same_outcome(stack, 0, slow)


# ---- What methods are made of -------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("kind", ["apart", "nearly alike", "alike"])
def test_gem_s_solution_equals_an_exhaustive_search_over_active_bounds(
    kind: str, count: int
) -> None:
    random = np.random.default_rng(count)
    for number in range(60):
        past = random.standard_normal((count, 8))
        if kind != "apart":
            past[1:] = past[0] + (1e-7 if kind == "nearly alike" else 0) * past[1:]
        past *= 10.0 ** random.integers(-2, 3)
        own = random.standard_normal(8) * 10.0 ** random.integers(-2, 3)
        gram, linear, least = past @ past.T, past @ own, (0.0, 0.5, 1.0)[number % 3]
        found = solve(gram, linear, least, 1e-3)
        quadratic = gram + 1e-3 * np.eye(count)
        best = solve_by_trial(quadratic, linear, least)

        costs = [v @ quadratic @ v / 2 + linear @ v for v in (found, best)]
        size = np.abs(quadratic).max() * np.abs(best).max() ** 2 + np.abs(linear @ best)
        assert costs[0] == pytest.approx(costs[1], abs=1e-12 * size)
        if kind == "apart":
            np.testing.assert_allclose(found, best, rtol=1e-6, atol=1e-9)
        assert (found >= least).all()


@pytest.mark.parametrize("count", [2, 5])
def test_gem_s_solution_is_found_for_huge_parallel_gradients(count: int) -> None:
    random = np.random.default_rng(count)
    for _ in range(100):
        past = np.outer(random.uniform(0.5, 2, count), random.standard_normal(8)) * 1e7
        own = random.standard_normal(8) * 1e7
        gram, linear = past @ past.T, past @ own
        found = solve(gram, linear, 0.5, 1e-3)
        assert (found >= 0.5).all()
        # The kept gradient disagrees with no past one, but for what 0.5 of each adds anyway.
        bent = past @ (past.T @ found + own)
        assert (bent >= -1e-6 * np.abs(gram).max()).all()


def test_herding_equals_a_slow_greedy_search() -> None:
    features = torch.randn(3, 20, 5, generator=torch.Generator().manual_seed(2)).double()
    features[1] += 4  # a mean far from 0
    for count in (1, 7, 20, 33):
        chosen = herd(features, count)
        assert chosen.shape == (3, min(count, 20))
        for trial in range(3):
            assert chosen[trial].tolist() == slow_herd(list(features[trial]), count)


def test_choose_rows_draws_a_uniform_sample_or_everything() -> None:
    rows = torch.tensor([3, 5, 8, 13, 21, 34])

    def choose(quota: int) -> Tensor:
        return choose_rows([np.random.default_rng(seed) for seed in range(300)], rows, quota)

    few = choose(2)
    assert few.shape == (300, 2)
    assert all(len(set(own)) == 2 for own in few.tolist())
    counts = Counter(few.flatten().tolist())
    assert counts.keys() == set(rows.tolist())
    # Binomial: 300 trials of 1/3, a standard deviation of 8.2.
    assert all(abs(count - 100) < 40 for count in counts.values())
    for quota in (6, 9):
        assert all(sorted(own) == rows.tolist() for own in choose(quota).tolist())
    assert choose(0).shape == (300, 0)


# ---- Masks and streams without tasks ------------------------------------------------------------

FREE_OF_TASKS = [name for name, kind in METHODS.items() if not kind.uses_tasks]


@pytest.mark.parametrize("method", [n for n, kind in METHODS.items() if not kind.unmaskable])
def test_a_mask_changes_what_a_method_learns_and_never_breaks_it(
    method: str, config: MakeConfig, tiny: Benchmark
) -> None:
    configs = [config(method=method, mask=mask) for mask in MASKS]
    stack = finish(TrialStack(configs, tiny, build_net=small_mlp))
    for name, tensor in stack.state().items():
        if not name.startswith("metrics/"):
            assert tensor.isfinite().all(), name
    weights = torch.cat([v.flatten(1) for n, v in stack.state().items() if n.startswith("net/")], 1)
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert (weights[one] - weights[other]).abs().max() > 0.01
    for result in stack.results():
        assert result.diverged_at is None
        measured = np.tril_indices(3)
        assert np.isfinite(np.array(result.task_il)[measured]).all()
        # PNN answers only if told the task, and so has neither.
        assert np.isfinite(np.array(result.class_il)[measured]).all() == METHODS[method].class_il
        assert np.isfinite(result.confidence).all() == METHODS[method].confidence


@pytest.mark.parametrize("method", [n for n, kind in METHODS.items() if kind.unmaskable])
def test_a_method_without_support_for_a_mask_gives_the_reason(
    method: str, config: MakeConfig, tiny: Benchmark
) -> None:
    reason = f"does not support a mask: .*{re.escape(str(METHODS[method].unmaskable))}"
    for mask in (-1.0, -INF):
        with pytest.raises(ValueError, match=reason):
            TrialStack([config(method=method, mask=mask)], tiny, build_net=small_mlp)
        with pytest.raises(SettingsError, match=reason):
            trial_configs(benchmark="split-digits", method=method, masks=[mask], seeds=[0])


@pytest.mark.parametrize("method", FREE_OF_TASKS)
def test_other_methods_learn_the_same_without_task_boundaries(
    method: str, config: MakeConfig, tiny: Benchmark
) -> None:
    told, free = (
        finish(TrialStack([config(method=method, task_free=task_free)], tiny, build_net=small_mlp))
        for task_free in (False, True)
    )
    for name, tensor in told.state().items():
        torch.testing.assert_close(free.state()[name], tensor, rtol=0, atol=0, equal_nan=True)


# ---- Less forgetting on digits ------------------------------------------------------------------


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(name, marks=() if name in ("er", "derpp") else pytest.mark.slow)
        for name, kind in METHODS.items()
        if kind.uses_buffer() and name != "agem"  # which helps only where the task is told
    ],
)
def test_a_method_with_a_memory_forgets_less_than_sgd(
    method: str, config: MakeConfig, digits: Benchmark
) -> None:
    def forgotten(name: str) -> Floats:
        settings = {"net": "mlp", "batch": 10, "replay_batch": 10, "buffer": 50, "epochs": 2}
        configs = [
            config(benchmark="split-digits", method=name, seed=seed, **settings)
            for seed in range(4)
        ]
        results = finish(TrialStack(configs, digits)).results()
        return forgetting(np.array([result.class_il for result in results]))

    # Measured: SGD forgets 99 points on average, the others between 11 and 33.
    sgd = forgotten("sgd")
    assert sgd.mean() > 95
    assert (forgotten(method) < sgd - 30).all()


# ---- Settings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("benchmark", "method", "buffer", "expected"),
    [
        ("split-mnist", "oewc", None, {"lr": 0.03, "batch": 10, "penalty": 90, "gamma": 1}),
        ("split-mnist", "si", None, {"lr": 0.1, "batch": 10, "c": 1, "xi": 0.9}),
        ("split-mnist", "lwf", None, {"lr": 0.03, "batch": 10, "alpha": 1, "decay": 0.0005}),
        ("split-mnist", "gem", 5120, {"lr": 0.1, "batch": 10, "gamma": 1}),
        ("split-mnist", "agem", 200, {"lr": 0.1, "batch": 10, "replay_batch": 128}),
        ("split-mnist", "icarl", 500, {"lr": 0.1, "batch": 10, "decay": 0}),
        ("split-mnist", "fdr", 200, {"lr": 0.03, "batch": 128, "replay_batch": 128}),
        ("split-mnist", "gss", 500, {"lr": 0.1, "batch": 128, "replay_batch": 10, "probes": 10}),
        ("split-mnist", "hal", 200, {"batch": 128, "anchoring": 0.1, "beta": 0.7, "gamma": 0.5}),
        ("split-mnist", "hal", 500, {"batch": 128, "anchoring": 0.1, "beta": 0.2, "gamma": 0.5}),
        ("split-mnist", "der", 500, {"lr": 0.03, "replay_batch": 128, "alpha": 1}),
        ("split-mnist", "lode", 200, {"lr": 0.01, "batch": 10, "replay_batch": 10, "rho": 0.1}),
        ("split-mnist", "cls_er", 200, {"lr": 0.03, "alpha": 2, "stable_rate": 0.9}),
        ("split-mnist", "cls_er", 5120, {"lr": 0.1, "alpha": 2, "stable_rate": 0.8}),
        # Nothing is published for them: ER's.
        ("split-mnist", "er_ace", 200, {"lr": 0.01, "batch": 10, "replay_batch": 10}),
        ("split-mnist", "er_las", 500, {"lr": 0.1, "batch": 10, "tau": 1, "window": 1}),
        # Of the nearest buffer that has some.
        ("split-mnist", "gem", 420, {"lr": 0.03, "gamma": 0.5}),
        ("split-cifar10", "lwf", None, {"lr": 0.01, "alpha": 3, "decay": 0.0005}),
        ("split-cifar10", "icarl", 5120, {"lr": 0.03, "decay": 1e-5}),
        ("split-cifar10", "gss", 200, {"epochs": 50, "probes": 32}),
        ("split-cifar10", "gss", 5120, {"epochs": 1, "probes": 32}),
        # Their optimiser's weight decay w is the gradient of w / 2 |theta|^2.
        ("split-cifar100", "icarl", 500, {"decay": 5e-6}),
        ("split-cifar100", "er_ace", 500, {"lr": 0.03}),
        ("split-cifar100", "er", 500, {"net": "resnet18", "epochs": 50, "lr_drops": (35, 45)}),
        ("split-tiny-imagenet", "er", 200, {"net": "resnet18", "epochs": 100, "lr_drops": ()}),
    ],
)
def test_the_published_settings_are_the_defaults(
    benchmark: str, method: str, buffer: int | None, expected: dict[str, object]
) -> None:
    (config,) = trial_configs(benchmark=benchmark, method=method, buffer=buffer, seeds=[0])
    settings = {**config.model_dump(), **dict(config.weights)}
    assert {name: settings[name] for name in expected} == expected
    assert {name for name, _ in config.weights} == {
        name for name in METHODS[method].weights if name not in ("alpha", "beta")
    }


@pytest.mark.parametrize("name", METHODS)
def test_a_weight_that_a_method_does_not_have_is_refused(
    name: str, config: MakeConfig, tiny: Benchmark
) -> None:
    with pytest.raises(SettingsError, match="has no weight 'temper'"):
        trial_configs(
            benchmark="split-digits", method=name, seeds=[0], overrides={"weights": {"temper": 1.0}}
        )
    with pytest.raises(ValueError, match=r"has the weights .*, got .*'temper'"):
        TrialStack([config(method=name, weights={"temper": 1.0})], tiny, build_net=small_mlp)


def test_a_given_weight_replaces_the_published_one_and_leaves_the_others() -> None:
    (config,) = trial_configs(
        benchmark="split-mnist",
        method="hal",
        buffer=500,
        seeds=[0],
        overrides={"weights": {"gamma": 0.25}, "beta": 0.9},
    )
    assert dict(config.weights) == {"anchoring": 0.1, "gamma": 0.25}
    assert config.beta == 0.9


def test_names_known_without_torch_agree_with_the_methods() -> None:
    assert {name: kind.title for name, kind in METHODS.items()} == TITLES
    assert {*METHODS} == {*SUMMARIES} - {*MASKED_NAMES}
    for name, (method, _) in MASKED_NAMES.items():
        assert systems_named(name, METHODS) == [Systems(method, masked=True, mask=None)]


def test_a_masked_name_leads_to_its_method_and_mask() -> None:
    with pytest.raises(UnknownNameError, match="`--method er --mask -inf`"):
        find_method("mser")
    with pytest.raises(UnknownNameError, match="`--method derpp --mask -1`"):
        find_method("msderpp")
