"""The command that runs a cell again, as a report shows it."""

import shlex
from collections.abc import Sequence

import pytest

from remask.config import TrialConfig
from remask.experiments import running
from remask.experiments.configs import trial_configs
from remask.experiments.options import RunOptions
from remask.experiments.results import Results, rerun_command
from remask.store.store import Store
from tests.command_line import CommandLine
from tests.store.store_samples import make_config


@pytest.mark.parametrize(
    "config",
    [
        make_config(),
        make_config(mask=float("-inf"), buffer=20, seed=0),
        make_config(
            mask=-1e9, method="derpp", alpha=0.25, beta=0.0, lr=0.3, epochs=2, lr_drops=(1,)
        ),
        make_config(method="oewc", buffer=0, replay_batch=0, weights={"penalty": 3, "gamma": 0.5}),
        make_config(tasks=2, class_order=(3, 1, 0, 2, 4, 5, 6, 7, 9, 8), limit=9, task_free=True),
        make_config(tasks=5, class_order=7, net="resnet18:8", batch=3, replay_batch=4),
        make_config(class_order="seed"),
        make_config(validation=0.15),
        make_config(mask=0.5, positive_mask=True, buffer=20, fade=1.5),
        make_config(method="derpp", mask=-1.0, mask_stored=True, alpha=0.5, beta=0.5),
        make_config(
            method="er_ema", mask="auto", buffer=20, alpha=0.5, weights={"slowness": 0.9, "ramp": 9}
        ),
        *trial_configs(benchmark="split-mnist", method="er_ema", buffer=500, seeds=[0]),
        *trial_configs(benchmark="split-cifar100", method="er", buffer=500, seeds=[4]),
        *trial_configs(benchmark="split-mnist", method="gem", buffer=500, seeds=[0]),
    ],
    ids=lambda config: rerun_command(config, [config.seed]),
)
def test_the_command_to_run_a_cell_again_asks_for_exactly_its_trials(
    config: TrialConfig, remask: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[Sequence[TrialConfig], RunOptions]] = []

    def look(_: Store, configs: Sequence[TrialConfig], options: RunOptions) -> Results:
        seen.append((configs, options))
        return Results([])

    monkeypatch.setattr(running, "run_trials", look)
    seeds = [config.seed, config.seed + 1]
    program, *arguments = shlex.split(rerun_command(config, seeds))
    assert program == "remask"
    remask.succeed(*arguments)
    ((found, options),) = seen
    assert options.again
    assert found == [config.model_copy(update={"seed": seed}) for seed in seeds]
