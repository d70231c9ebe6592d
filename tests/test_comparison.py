"""Ours beside published figures."""

import math
from collections.abc import Sequence

import pytest

from remask.config import TrialConfig
from remask.papers import Claim, PaperCell, claims
from remask.report import (
    Comparison,
    compare,
    comparison_markdown,
    paper_cell,
    verdicts,
)
from remask.settings import trial_configs
from remask.store import Spread, Store, TrialRecord, summarise
from tests.command_line import CommandLine
from tests.store_samples import trial_with_accuracy


def _claim(mean: float, std: float | None, metric: str = "A_T") -> Claim:
    return Claim("split-mnist", "er", None, 200, "class-il", metric, mean, std, 10, "buzzega2020")


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
    comparison = Comparison(_claim(*claim, metric=metric), ours, 10)
    assert comparison.verdict == verdict
    assert comparison.deviations == pytest.approx(deviations)


def test_a_figure_of_a_cell_that_was_not_run_is_not_run() -> None:
    assert Comparison(_claim(80.0, 1.0), None, 0).verdict == "not run"


def _configs(method: str = "er", mask: float | None = None) -> list[TrialConfig]:
    return trial_configs(
        benchmark="split-mnist", method=method, masks=[mask], buffer=200, seeds=range(2)
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
    # Everything is 78.27, so Class-IL accuracy is reproduced and Task-IL accuracy far too low.
    assert er.figures["class_il_A_T"].verdict == "reproduced"
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
    assert row.startswith("| ER | 200 | 2 | 78.27 ±0.00 | 78.27 ±1.37 | +0.0 |")
    assert "reproduced" in answer.out.splitlines()[-1]


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
