"""Ours beside published figures."""

import math

import pytest

from remask.config import TrialConfig
from remask.papers import Claim, claims
from remask.report import Comparison, compare, comparison_markdown, verdicts
from remask.settings import trial_configs
from remask.store import Cell, Score, Spread, Store, TrialRecord
from tests.command_line import CommandLine

_CONFIG = TrialConfig(
    benchmark="split-mnist", method="er", buffer=200, lr=0.01, batch=10, replay_batch=10, epochs=1
)


def _claim(
    mean: float, std: float | None, metric: str = "A_T", source: str = "buzzega2020"
) -> Claim:
    return Claim("split-mnist", "er", None, 200, "class-il", metric, mean, std, 10, source)


def _cell(accuracy: Spread) -> Cell:
    nothing = Spread(math.nan, math.nan)
    return Cell(_CONFIG, "ER", 10, 0, 0, Score(accuracy, nothing), Score(nothing, nothing))


@pytest.mark.parametrize(
    ("ours", "claim", "metric", "verdict", "deviations"),
    [
        (Spread(81.0, 0.1), (80.0, 0.5), "A_T", "reproduced", 2.0),
        (Spread(81.1, 0.1), (80.0, 0.5), "A_T", "better", 2.2),
        (Spread(78.9, 0.1), (80.0, 0.5), "A_T", "worse", -2.2),
        (Spread(21.1, 0.1), (20.0, 0.5), "F_T", "worse", 2.2),
        (Spread(18.9, 0.1), (20.0, 0.5), "F_T", "better", -2.2),
        # Ours is so spread that ten trials cannot tell: z = 1.1 / sqrt(0.025 + 3.6) < 2.
        (Spread(81.1, 6.0), (80.0, 0.5), "A_T", "not told apart", 2.2),
        (Spread(0.004, 0.0), (0.0, 0.0), "F_T", "reproduced", 0.0),
        (Spread(0.006, 0.0), (0.0, 0.0), "F_T", "worse", math.inf),
    ],
)
def test_a_figure_is_reproduced_within_two_std_and_else_told_apart_or_not(
    ours: Spread, claim: tuple[float, float], metric: str, verdict: str, deviations: float
) -> None:
    comparison = Comparison(ours, 10, _claim(*claim, metric=metric))
    assert comparison.verdict == verdict
    assert comparison.deviations == pytest.approx(deviations)


def test_the_paper_s_own_figure_comes_before_one_that_it_quotes() -> None:
    both = [_claim(1.0, 1.0), _claim(2.0, 1.0, source="paper-dagger"), _claim(3.0, 1.0)]
    found = compare(_cell(Spread(2.5, 0.1)), both)
    assert {title: c.claim.mean for title, c in found.items()} == {"Class-IL A_T": 2.0}


def test_what_was_not_measured_or_is_not_published_is_left_out() -> None:
    measured = _cell(Spread(80.0, 1.0))
    assert compare(measured, [_claim(20.0, 1.0, metric="F_T")]) == {}
    assert compare(measured, []) == {}
    text = comparison_markdown([measured], [_claim(80.0, 1.0)])
    assert text.splitlines()[2].startswith("| ER | 200 | 80.00 ±1.00 | 80.00 ±1.00 | +0.0 | - |")
    counts = verdicts([measured], [_claim(80.0, 1.0)])
    assert counts == {"reproduced": 1, "not told apart": 0, "better": 0, "worse": 0}


def test_only_trials_with_the_published_settings_are_compared(remask: CommandLine) -> None:
    configs = trial_configs(benchmark="split-mnist", method="er", buffer=200, seeds=range(2))
    matrix = tuple(tuple(78.27 if k <= j else math.nan for k in range(5)) for j in range(5))

    def record(config: TrialConfig) -> TrialRecord:
        return TrialRecord(
            config=config, class_il=matrix, task_il=matrix, started="2026-01-01T00:00Z", seconds=1
        )

    with Store(remask.store) as store:
        store.add(record(configs[0].model_copy(update={"lr": 0.5})))
    assert "Nothing is published" in remask("results", "compare").out
    with Store(remask.store) as store:
        for config in configs:
            store.add(record(config))
    answer = remask("results", "compare", "--markdown")
    assert answer.code == 0
    (row,) = [line for line in answer.out.splitlines() if line.startswith("| ER")]
    assert row.startswith("| ER | 200 | 78.27 ±0.00 | 78.27 ±1.37 | +0.0 |")
    assert "reproduced" in answer.out.splitlines()[-1]


def test_every_claim_is_about_a_method_and_a_benchmark_that_exist() -> None:
    for claim in claims():
        (config,) = trial_configs(
            benchmark=claim.benchmark,
            method=claim.method,
            masks=[claim.mask],
            buffer=claim.buffer,
            seeds=[0],
        )
        assert config.buffer == (claim.buffer or 0)
