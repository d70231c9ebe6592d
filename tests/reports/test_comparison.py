"""Our cells against published figures, and with a mask against without."""

import math
from collections.abc import Sequence

import pytest

from remask.config import TrialConfig
from remask.experiments.configs import trial_configs
from remask.papers.experiments import PaperCell, experiment_cells
from remask.papers.published import Claim, claims
from remask.reports.comparison import (
    Comparison,
    compare,
    comparison_markdown,
    comparison_table,
    paper_cell,
    verdicts,
)
from remask.reports.measures import contrasts
from remask.store import Spread, TrialRecord, summarise
from tests.command_line import CommandLine
from tests.reports.samples import report_data, trials
from tests.store.store_samples import trial_with_accuracy

_SAME = "no significant difference"
_ER = PaperCell("split-mnist", "er", None, 200)


def _claim(mean: float, std: float, metric: str = "A_T") -> Claim:
    return Claim("split-mnist", "er", None, 200, "class-il", metric, mean, std, 10, "buzzega2020")


@pytest.mark.parametrize(
    ("ours", "claim", "metric", "verdict", "deviations"),
    [
        (Spread(80.1, 0.5, 10), (80.0, 0.5), "A_T", _SAME, 0.2),
        # Within two standard deviations of the claim, and yet significantly different.
        (Spread(80.8, 0.5, 10), (80.0, 0.5), "A_T", "better", 1.6),
        (Spread(20.8, 0.5, 10), (20.0, 0.5), "F_T", "worse", 1.6),
        (Spread(19.2, 0.5, 10), (20.0, 0.5), "F_T", "better", -1.6),
        # Further away, but with a large spread: t = 1.1 / sqrt(4 + 0.03) = 0.5.
        (Spread(81.1, 6.0, 10), (80.0, 0.5), "A_T", _SAME, 2.2),
        # The same means and spreads: p = 0.02 with 5 trials, 0.11 with 3, and no test with 2.
        (Spread(80.9, 0.5, 5), (80.0, 0.5), "A_T", "better", 1.8),
        (Spread(80.9, 0.5, 3), (80.0, 0.5), "A_T", _SAME, 1.8),
        (Spread(80.9, 0.5, 2), (80.0, 0.5), "A_T", "too few trials", 1.8),
        (Spread(90.0, 0.0, 1), (80.0, 0.5), "A_T", "too few trials", 20.0),
        # Half of the last printed decimal is not a difference.
        (Spread(0.004, 0.0, 10), (0.0, 0.0), "F_T", _SAME, 0.0),
        (Spread(0.006, 0.0, 10), (0.0, 0.0), "F_T", "worse", math.inf),
        # A mean that was published without a deviation counts as exact.
        (Spread(80.9, 0.5, 10), (80.0, math.nan), "A_T", "better", math.nan),
        (Spread(80.2, 0.5, 10), (80.0, math.nan), "A_T", _SAME, math.nan),
        (None, (80.0, 1.0), "A_T", "not run", math.nan),
    ],
)
def test_the_verdict_on_a_published_figure_follows_from_welch_s_test(
    ours: Spread | None, claim: tuple[float, float], metric: str, verdict: str, deviations: float
) -> None:
    comparison = Comparison(_claim(*claim, metric=metric), ours)
    assert comparison.verdict == verdict
    assert comparison.deviations == pytest.approx(deviations, nan_ok=True)
    assert comparison.is_near == (abs(deviations) <= 2)


def _configs(method: str = "er", mask: float | None = None, trials: int = 3) -> list[TrialConfig]:
    return trial_configs(
        benchmark="split-mnist", method=method, masks=[mask], buffer=200, seeds=range(trials)
    )


def _records(configs: Sequence[TrialConfig], accuracy: float) -> list[TrialRecord]:
    return [trial_with_accuracy(config, accuracy) for config in configs]


def test_the_verdict_on_a_cell_is_that_of_its_worst_figure() -> None:
    cells = summarise([*_records(_configs(), 78.27), *_records(_configs("derpp", -5.0), 80.0)])
    unpublished, er = compare([paper_cell(cell) for cell in cells], cells)
    # Everything is 78.27: the published Class-IL accuracy, and far too low in Task-IL.
    assert er.figures["class_il_A_T"].verdict == _SAME
    assert er.figures["task_il_A_T"].verdict == "worse"
    assert er.figures["class_il_F_T"].verdict == "better"
    assert er.verdict == "worse"
    assert (unpublished.figures, unpublished.verdict) == ({}, None)
    assert verdicts([er, unpublished])["worse"] == 1


def test_figures_without_a_measurement_are_omitted_and_cells_without_a_run_listed() -> None:
    joint = PaperCell("split-mnist", "joint", None, 0)
    (compared,) = compare([joint], [])
    assert set(compared.figures) == {"class_il_A_T", "task_il_A_T"}
    row = comparison_markdown([compared]).splitlines()[2]
    assert row.startswith("| JOINT | - | - | 95.57 ±0.24 | - | - | - | 99.51 ±0.07 |")
    assert str(comparison_table([compared])).splitlines()[-2].endswith("not run")
    assert verdicts([compared])["not run"] == 2


def test_only_trials_with_the_published_settings_are_compared(remask: CommandLine) -> None:
    configs = _configs()
    # A method that is code is not imported.
    for change in ({"lr": 0.5}, {"method": "antigravity_of_mine:Method"}):
        remask.add(trial_with_accuracy(configs[0].model_copy(update=change), 78.27))
    assert "Nothing is published" in remask("results", "compare").out
    remask.add(*_records(configs, 78.27))
    answer = remask.succeed("results", "compare", "--markdown")
    (row,) = [line for line in answer.out.splitlines() if line.startswith("| ER")]
    assert row.startswith(
        "| ER | 200 | 78.27 ±0.00 | 78.27 ±1.37 | 0.00 ±0.00 | 24.09 ±1.61, better |"
    )
    summary = " ".join(answer.out.splitlines()[-3:])
    assert "Of 4 figures, 1 are within 2 std" in summary
    assert "Of 4 figures, 3 differ significantly (!): 2 better, 1 worse" in summary
    assert "Published figures are over 10 trials" in summary


def test_one_trial_has_no_standard_deviation_and_no_verdict(remask: CommandLine) -> None:
    remask.add(*_records(_configs(trials=1), 85.37))
    answer = remask("results", "compare", "--markdown")
    (row,) = [line for line in answer.out.splitlines() if line.startswith("| ER")]
    assert row.startswith("| ER | 200 | 85.37     - | 78.27 ±1.37 |")
    assert "4 too few trials." in answer.out
    for command in ("compare", "list"):
        lines = remask("results", command).out.splitlines()
        (ours,) = [line for line in lines if "85.37" in line]
        assert "±" not in ours


def test_every_claim_is_about_a_method_and_a_benchmark_that_exist() -> None:
    cells = {PaperCell(c.benchmark, c.method, c.mask, c.buffer) for c in claims()}
    for cell in cells:
        (config,) = trial_configs(
            benchmark=cell.benchmark,
            method=cell.method,
            masks=[cell.mask],
            buffer=cell.buffer or None,
            seeds=[0],
        )
        assert config.buffer == cell.buffer


def test_the_page_lists_cells_that_were_not_run_if_most_of_their_experiment_was() -> None:
    wanted = experiment_cells("low-buffer", "split-mnist")

    def shown(run: int) -> list[str | None]:
        records: list[TrialRecord] = []
        for cell in wanted[:run]:
            records += trials(
                [80.0],
                benchmark="split-mnist",
                method=cell.method,
                mask=cell.mask,
                buffer=cell.buffer,
            )
        return [cell["verdict"] for cell in report_data(records, published=True)["cells"]]

    few, most = shown(2), shown(len(wanted) - 1)
    assert len(few) == 2
    assert (len(most), most.count("not run")) == (len(wanted), 1)


# With a mask against without


def test_only_cells_that_differ_in_nothing_but_the_mask_are_contrasted() -> None:
    cells = summarise(
        trials([70, 80], lr=0.1) + trials([71, 81], lr=0.2, mask=-1.0) + trials([1, 2], mask=-2.0)
    )
    assert [(plain.config.lr, masked.config.mask) for masked, plain in contrasts(cells)] == [
        (0.1, -2.0)
    ]
