"""Masks that fade, are stored or positive, against slow methods; their settings."""

from typing import Any

import pytest
import torch

from remask.config import TrialConfig
from remask.data.benchmark import Benchmark
from remask.engine import TrialStack
from remask.errors import SettingsError
from remask.experiments.configs import trial_configs
from remask.experiments.results import rerun_command
from remask.methods import MethodError
from remask.store import Store
from tests.command_line import CommandLine
from tests.engine.stack_samples import finish, small_mlp
from tests.methods.slow import INF, SLOW, MakeConfig, SlowDERpp, assert_same_outcome, run_noted


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


def test_logits_are_stored_masked_only_where_there_are_some_and_a_finite_mask(
    config: MakeConfig, tiny: Benchmark
) -> None:
    for mask in (None, -INF):
        with pytest.raises(ValueError, match="needs a finite mask"):
            config(mask=mask, mask_stored=True)
    with pytest.raises(MethodError, match="ER stores no logits"):
        TrialStack([config(method="er", mask=-1.0, mask_stored=True)], tiny, build_net=small_mlp)

    def asked(method: str, *masks: float | None) -> list[TrialConfig]:
        return trial_configs(
            benchmark="split-digits",
            method=method,
            masks=masks,
            seeds=[0],
            overrides={"mask_stored": True},
        )

    with pytest.raises(SettingsError, match="ER has no setting 'mask_stored'"):
        asked("er", -1.0)
    with pytest.raises(SettingsError, match="needs a finite mask"):
        asked("derpp", -INF)
    assert [own.mask_stored for own in asked("derpp", -1.0, None)] == [True, False]


def test_a_positive_mask_is_asked_for_once_for_all_masks() -> None:
    def asked(**overrides: bool) -> list[TrialConfig]:
        return trial_configs(
            benchmark="split-digits",
            method="er",
            masks=[None, -1.0, 1.0],
            seeds=[0],
            overrides=overrides,
        )

    with pytest.raises(SettingsError, match="unless positive_mask is set"):
        asked()
    configs = asked(positive_mask=True)
    assert [own.positive_mask for own in configs] == [False, False, True]
    assert len({own.shape() for own in configs}) == 1  # they run as one stack


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
    # To the other two, it is all the same.
    steady = [own.model_copy(update={"fade": 0.0, "fade_power": 1.0}) for own in configs]
    state = finish(TrialStack(steady, tiny, build_net=small_mlp)).state()
    for name, tensor in stack.state().items():
        if name.startswith("net/"):
            assert not torch.equal(tensor[:3], state[name][:3])
            # Their batches share products with those of other terms, which round differently.
            torch.testing.assert_close(tensor[3:], state[name][3:], rtol=1e-5, atol=1e-6)


def test_a_mask_cannot_fade_where_there_is_none_or_no_memory(
    config: MakeConfig, tiny: Benchmark
) -> None:
    with pytest.raises(ValueError, match="fade needs a mask"):
        config(method="er", fade=1.0)
    with pytest.raises(MethodError, match="SGD has no memory"):
        TrialStack([config(method="sgd", mask=-1.0, fade=1.0)], tiny, build_net=small_mlp)
    with pytest.raises(ValueError, match="fade_power needs fade"):
        config(method="er", mask=-1.0, fade_power=1.5)
    for method, message in (
        ("er", "fade needs a mask"),
        ("lode", "LODE has no setting 'fade'"),
        ("sgd", "SGD has no setting 'fade'"),
    ):
        with pytest.raises(SettingsError, match=message):
            trial_configs(
                benchmark="split-digits", method=method, seeds=[0], overrides={"fade": 4.0}
            )
    masked, plain = trial_configs(
        benchmark="split-digits",
        method="er",
        masks=[-1.0, None],
        seeds=[0],
        overrides={"fade": 4.0},
    )
    assert (masked.fade, plain.fade) == (4.0, 0.0)


def test_er_ema_wears_a_fading_mask_unless_told_otherwise() -> None:
    def asked(**changes: Any) -> list[TrialConfig]:
        return trial_configs(
            benchmark="split-mnist", method="er_ema", buffer=500, seeds=[0], **changes
        )

    (rule,) = asked()
    assert (rule.mask, rule.fade, rule.lr, rule.batch, rule.replay_batch) == (0, 4, 0.15, 10, 32)
    assert (rule.alpha, dict(rule.weights)) == (0.5, {"slowness": 0.995, "ramp": 9})
    (plain,) = asked(masks=[None])
    assert (plain.mask, plain.fade) == (None, 0)
    (steady,) = asked(overrides={"fade": 0.0})
    assert (steady.mask, steady.fade) == (0, 0)


def test_the_command_line_takes_what_a_mask_can_have_and_says_how_to_run_it_again(
    remask: CommandLine,
) -> None:
    small = ["--limit", "6", "--trials", "1", "--epochs", "1", "--workers", "1"]
    refused = remask("run", "--method", "er", "--mask", "1", *small)
    assert refused.code != 0
    assert "positive_mask" in refused.err
    masked = ["--method", "derpp", "--mask", "none,0.5", "--positive-mask", "--mask-stored"]
    answer = remask("run", *masked, "--fade", "2", *small)
    assert answer.code == 0
    assert "MSDER++(0.5)" in answer.out
    assert remask("run", "--method", "er_ema", "--mask", "none,0", *small).code == 0
    with Store(remask.store) as store:
        commands = {
            (own.method, own.mask): rerun_command(own, [0])
            for own in (record.config for record in store.records())
        }
    again = {name: command.split() for name, command in commands.items()}
    assert {"--mask=0.5", "--positive-mask", "--mask-stored"} <= set(again["derpp", 0.5])
    assert "--fade 2.0" in commands["derpp", 0.5]
    assert not {"--mask=none", "--fade", "--mask-stored"} & set(again["derpp", None])
    assert "--mask=none" in again["er_ema", None]
    assert not {"--fade", "--positive-mask"} & set(again["er_ema", 0.0])
