"""Masks that fade, are stored or positive; streams without tasks; settings that follow."""

from typing import Any

import pytest
from torch import Tensor

from remask.config import TrialConfig
from remask.data.benchmark import Benchmark, load_benchmark
from remask.engine import TrialStack
from remask.errors import SettingsError
from remask.experiments.configs import trial_configs
from remask.experiments.jobs import benchmark_of
from remask.methods import ER, Step
from tests.engine.stack_samples import MakeConfig, small_mlp
from tests.methods.slow import INF, SLOW, SlowDERpp, assert_same_outcome, run_noted


@pytest.mark.parametrize("mask_stored", [False, True])
def test_der_stores_logits_raw_or_as_the_mask_leaves_them(
    mask_stored: bool, config: MakeConfig, tiny: Benchmark
) -> None:
    configs = [
        config(seed=seed, mask=mask, mask_stored=mask_stored, positive_mask=mask > 0)
        for seed, mask in enumerate((-1.0, 0.0, 0.5))
    ]
    stack, chance = run_noted(configs, tiny)
    for trial, own in enumerate(configs):
        slow = SlowDERpp(own, tiny, chance.of_trial(trial))
        slow.run()
        assert_same_outcome(stack, trial, slow)


def asked(method: str, *masks: float | None, **overrides: Any) -> list[TrialConfig]:
    return trial_configs(
        benchmark="split-digits", method=method, masks=masks, seeds=[0], overrides=overrides
    )


@pytest.mark.parametrize(
    ("method", "mask", "setting", "message"),
    [
        ("er", -1.0, {"mask_stored": True}, "ER has no setting 'mask_stored'"),
        ("derpp", -INF, {"mask_stored": True}, "needs a finite mask"),
        ("er", None, {"fade": 4.0}, "fade needs a mask"),
        ("lode", None, {"fade": 4.0}, "LODE has no setting 'fade'"),
        ("sgd", None, {"fade": 4.0}, "SGD has no setting 'fade'"),
        ("er", 1.0, {}, "unless positive_mask is set"),
    ],
)
def test_a_setting_that_does_not_fit_the_mask_or_the_method_is_refused(
    method: str, mask: float | None, setting: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        asked(method, mask, **setting)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"mask": None, "mask_stored": True}, "needs a finite mask"),
        ({"mask": -INF, "mask_stored": True}, "needs a finite mask"),
        ({"method": "er", "mask": -1.0, "mask_stored": True}, "ER stores no logits"),
        ({"method": "er", "fade": 1.0}, "fade needs a mask"),
        ({"method": "sgd", "mask": -1.0, "fade": 1.0}, "SGD has no memory"),
        ({"method": "er", "mask": -1.0, "fade_power": 1.5}, "fade_power needs fade"),
    ],
)
def test_a_config_or_a_stack_that_contradicts_itself_is_refused(
    setting: dict[str, Any], message: str, config: MakeConfig, tiny: Benchmark
) -> None:
    with pytest.raises(ValueError, match=message):
        TrialStack([config(**setting)], tiny, build_net=small_mlp)


def test_a_setting_of_masks_is_given_once_and_holds_where_it_can() -> None:
    assert [own.mask_stored for own in asked("derpp", -1.0, None, mask_stored=True)] == [
        True,
        False,
    ]
    assert [own.fade for own in asked("er", -1.0, None, fade=4.0)] == [4.0, 0.0]
    positive = asked("er", None, -1.0, 1.0, positive_mask=True)
    assert [own.positive_mask for own in positive] == [False, False, True]
    assert len({own.shape() for own in positive}) == 1  # they run as one stack


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["er", "er_ema"])
def test_a_mask_fades_with_the_share_of_the_stream_in_memory(
    method: str, config: MakeConfig, tiny: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMASK_ENGINE", "torch")  # where methods that note their draws run
    # A stack in which masks fade at rates of their own, or never, and one trial has none. The
    # stream has 87 samples, each presented twice.
    configs = [
        config(method=method, seed=seed, mask=mask, fade=fade, fade_power=power)
        for seed, (mask, fade, power) in enumerate(
            [(-1.0, 1.0, 1.0), (-INF, 4.0, 1.0), (0.0, 1.0, 1.5), (0.0, 0.0, 1.0), (None, 0.0, 1.0)]
        )
    ]
    stack, chance = run_noted(configs, tiny)
    for trial, own in enumerate(configs):
        slow = SLOW[method](own, tiny, chance.of_trial(trial))
        slow.run()
        assert_same_outcome(stack, trial, slow)
        if own.fade:
            assert slow.happened["faded to 1"]
            assert slow.happened["half faded"]


def test_er_ema_has_a_fading_mask_by_default() -> None:
    arguments: dict[str, Any] = {"benchmark": "split-mnist", "method": "er_ema", "buffer": 500}
    (default,) = trial_configs(**arguments, seeds=[0])
    assert (default.mask, default.fade, default.alpha) == (0, 4, 0.5)
    assert (default.lr, default.batch, default.replay_batch) == (0.15, 10, 32)
    assert dict(default.weights) == {"slowness": 0.995, "ramp": 9}
    (plain,) = trial_configs(**arguments, masks=[None], seeds=[0])
    assert (plain.mask, plain.fade) == (None, 0)
    (steady,) = trial_configs(**arguments, overrides={"fade": 0.0}, seeds=[0])
    assert (steady.mask, steady.fade) == (0, 0)


class Watched(ER):
    """ER that notes what it was shown."""

    seen: list[tuple[Tensor, Tensor]]

    def loss(self, step: Step) -> Tensor:
        assert step.active is not None
        self.seen.append((step.active.clone(), step.stream.labels.clone()))
        return super().loss(step)


def _watch(task_free: bool) -> list[tuple[Tensor, Tensor]]:
    configs = trial_configs(
        benchmark="split-digits",
        method="er",
        masks=[-INF, None],
        seeds=[3],
        overrides={"task_free": task_free, "epochs": 1, "batch": 3},
    )
    Watched.seen = []
    for _ in TrialStack(configs, load_benchmark("split-digits"), method=Watched).run():
        pass
    return Watched.seen


def test_without_tasks_the_active_classes_are_those_of_the_batch() -> None:
    sizes = set()
    for active, labels in _watch(task_free=True):
        masked, unmasked = active.squeeze(1)
        assert masked.nonzero().flatten().tolist() == sorted(set(labels[0].tolist()))
        assert unmasked.all()
        sizes.add(int(masked.sum()))
    assert sizes == {1, 2}  # some batches of three hold one class only


def test_with_tasks_the_active_classes_are_those_of_the_task() -> None:
    assert {int(active[0].sum()) for active, _ in _watch(task_free=False)} == {2}


def test_a_trial_is_dealt_the_tasks_its_config_asks_for() -> None:
    (config,) = trial_configs(
        benchmark="split-digits",
        method="er",
        seeds=[0],
        overrides={"tasks": 3, "class_order": [9, 8, 7, 6, 5, 4, 3, 2, 1, 0], "limit": 20},
    )
    benchmark = benchmark_of(config)
    assert benchmark.tasks == ((9, 8, 7, 6), (5, 4, 3), (2, 1, 0))
    assert len(benchmark.train_labels) == 200
    (record,) = TrialStack([config], benchmark).finish()
    assert len(record.class_il) == 3


def test_a_setting_that_changes_what_was_published_changes_what_follows_from_it() -> None:
    (short,) = trial_configs(
        benchmark="split-cifar100", method="er", seeds=[0], overrides={"epochs": 1}
    )
    assert short.lr_drops == ()
    (fashion,) = trial_configs(benchmark="split-fashion-mnist", method="er", seeds=[0])
    (mnist,) = trial_configs(benchmark="split-mnist", method="er", seeds=[0])
    assert fashion == mnist.model_copy(update={"benchmark": "split-fashion-mnist"})
