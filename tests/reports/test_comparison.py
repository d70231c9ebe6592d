"""Ours beside published figures."""

import math
from collections.abc import Sequence

import pytest

from remask.config import TrialConfig
from remask.experiments import trial_configs
from remask.papers.experiments import PaperCell
from remask.papers.published import Claim, claims
from remask.reports.comparison import Comparison, compare, comparison_markdown, paper_cell, verdicts
from remask.results import Spread, Store, TrialRecord, summarise
from tests.command_line import CommandLine
from tests.results.store_samples import trial_with_accuracy


def _claim(mean: float, std: float, metric: str = "A_T") -> Claim:
    return Claim("split-mnist", "er", None, 200, "class-il", metric, mean, std, 10, "buzzega2020")


@pytest.mark.parametrize(
    ("ours", "claim", "metric", "verdict", "deviations"),
    [
        (Spread(80.1, 0.5, 10), (80.0, 0.5), "A_T", "no significant difference", 0.2),
        # Within two standard deviations of the claim, and yet its mean is another.
        (Spread(80.8, 0.5, 10), (80.0, 0.5), "A_T", "better", 1.6),
        (Spread(79.2, 0.5, 10), (80.0, 0.5), "A_T", "worse", -1.6),
        (Spread(20.8, 0.5, 10), (20.0, 0.5), "F_T", "worse", 1.6),
        (Spread(19.2, 0.5, 10), (20.0, 0.5), "F_T", "better", -1.6),
        # Further off, but so spread that ten trials cannot tell: t = 1.1 / sqrt(4 + 0.03) = 0.5.
        (Spread(81.1, 6.0, 10), (80.0, 0.5), "A_T", "no significant difference", 2.2),
        # The same means and spreads: p = 0.02 with 5 trials, 0.11 with 3, and no test with 2.
        (Spread(80.9, 0.5, 5), (80.0, 0.5), "A_T", "better", 1.8),
        (Spread(80.9, 0.5, 3), (80.0, 0.5), "A_T", "no significant difference", 1.8),
        (Spread(80.9, 0.5, 2), (80.0, 0.5), "A_T", "too few trials", 1.8),
        (Spread(90.0, 0.0, 1), (80.0, 0.5), "A_T", "too few trials", 20.0),
        # Half of the last decimal that was printed is no difference.
        (Spread(0.004, 0.0, 10), (0.0, 0.0), "F_T", "no significant difference", 0.0),
        (Spread(0.006, 0.0, 10), (0.0, 0.0), "F_T", "worse", math.inf),
    ],
)
def test_a_figure_is_better_or_worse_if_welch_s_test_tells_it_from_the_claim(
    ours: Spread, claim: tuple[float, float], metric: str, verdict: str, deviations: float
) -> None:
    comparison = Comparison(_claim(*claim, metric=metric), ours)
    assert comparison.verdict == verdict
    assert comparison.deviations == pytest.approx(deviations)
    assert comparison.is_near == (abs(deviations) <= 2)


def test_a_figure_of_a_cell_that_was_not_run_is_not_run() -> None:
    comparison = Comparison(_claim(80.0, 1.0), None)
    assert comparison.verdict == "not run"
    assert not comparison.is_near


def _configs(method: str = "er", mask: float | None = None, trials: int = 3) -> list[TrialConfig]:
    return trial_configs(
        benchmark="split-mnist", method=method, masks=[mask], buffer=200, seeds=range(trials)
    )


def _records(configs: Sequence[TrialConfig], accuracy: float) -> list[TrialRecord]:
    return [trial_with_accuracy(config, accuracy) for config in configs]


def test_the_paper_s_own_figure_comes_before_one_that_it_quotes() -> None:
    quoted = [c.mean for c in claims() if paper(c) == _ER and c.source == "buzzega2020"]
    assert 80.43 in quoted
    (compared,) = compare([_ER], [])
    assert compared.figures["class_il_A_T"].claim.mean == 78.27


_ER = PaperCell("split-mnist", "er", None, 200)


def paper(claim: Claim) -> PaperCell:
    return PaperCell(claim.benchmark, claim.method, claim.mask, claim.buffer or 0)


def test_a_cell_is_judged_by_its_worst_figure_and_by_none_where_nothing_is_published() -> None:
    cells = summarise([*_records(_configs(), 78.27), *_records(_configs("derpp", -5.0), 80.0)])
    unpublished, er = compare([paper_cell(cell) for cell in cells], cells)
    # Everything is 78.27: the published Class-IL accuracy, and far too low in Task-IL.
    assert er.figures["class_il_A_T"].verdict == "no significant difference"
    assert er.figures["task_il_A_T"].verdict == "worse"
    assert er.figures["class_il_F_T"].verdict == "better"
    assert er.verdict == "worse"
    assert unpublished.figures == {}
    assert unpublished.verdict is None
    assert verdicts([er, unpublished])["worse"] == 1


def test_what_was_not_measured_is_left_out_and_what_was_not_run_is_said() -> None:
    joint = PaperCell("split-mnist", "joint", None, 0)
    (compared,) = compare([joint], [])
    assert set(compared.figures) == {"class_il_A_T", "task_il_A_T"}
    row = comparison_markdown([compared]).splitlines()[2]
    assert row.startswith("| JOINT | - | 0 | - | 95.57 ±0.24 | - | - | - | - |")
    assert row.endswith("| not run |")
    assert verdicts([compared])["not run"] == 2


def test_only_trials_with_the_published_settings_are_compared(remask: CommandLine) -> None:
    configs = _configs()
    other = configs[0].model_copy(update={"lr": 0.5})
    with Store(remask.store) as store:
        store.add(trial_with_accuracy(other, 78.27))
    assert "Nothing is published" in remask("results", "compare").out
    with Store(remask.store) as store:
        for record in _records(configs, 78.27):
            store.add(record)
    answer = remask("results", "compare", "--markdown")
    assert answer.code == 0
    (row,) = [line for line in answer.out.splitlines() if line.startswith("| ER")]
    assert row.startswith("| ER | 200 | 3 | 78.27 ±0.00 | 78.27 ±1.37 | +0.0 |")
    told = " ".join(answer.out.splitlines()[-3:])
    assert "Of 4 figures, 1 are within 2 std" in told
    assert "Of 4 figures, 3 differ significantly (!): 2 better, 1 worse" in told
    assert "Published figures are over 10 trials" in told


def test_one_trial_has_no_spread_and_gets_no_verdict(remask: CommandLine) -> None:
    with Store(remask.store) as store:
        for record in _records(_configs(trials=1), 85.37):
            store.add(record)
    answer = remask("results", "compare", "--markdown")
    (row,) = [line for line in answer.out.splitlines() if line.startswith("| ER")]
    assert row.startswith("| ER | 200 | 1 | 85.37     - | 78.27 ±1.37 | +5.2 |")
    assert row.endswith("| too few trials |")
    assert "4 too few trials." in answer.out
    for command in ("compare", "list"):
        lines = remask("results", command).out.splitlines()
        (ours,) = [line for line in lines if "85.37" in line]
        assert "±" not in ours


def test_a_store_that_names_code_is_compared_without_importing_it(remask: CommandLine) -> None:
    config = _configs()[0].model_copy(update={"method": "antigravity_of_mine:Method"})
    with Store(remask.store) as store:
        store.add(trial_with_accuracy(config, 78.27))
    answer = remask("results", "compare")
    assert answer.code == 0
    assert "Nothing is published" in answer.out


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
