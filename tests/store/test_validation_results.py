"""What becomes of figures on held-out data: in the store, in tables, on the page, in a sweep."""

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from remask.experiments.configs import trial_configs
from remask.experiments.results import changed_settings, rerun_command
from remask.reports.tables import best_by_validation
from remask.store import TrialRecord, summarise
from tests.command_line import CommandLine
from tests.store.store_samples import (
    NAN,
    diverged,
    failed,
    held_out_record,
    make_config,
    make_record,
    trial_with_accuracy,
)

QUICK = ("--benchmark", "split-digits", "--epochs", "1", "--limit", "15", "--workers", "1")


def trials(held_out: Sequence[float], test: Sequence[float], **settings: Any) -> list[TrialRecord]:
    """Trials of one cell with these accuracies on held-out data and on the test set."""
    return [
        trial_with_accuracy(
            make_config(**{"validation": 0.1, "seed": seed, **settings}), seen, validation=kept
        )
        for seed, (kept, seen) in enumerate(zip(held_out, test, strict=True))
    ]


def choice(*cells: Sequence[TrialRecord]) -> list[str]:
    return best_by_validation(summarise([record for cell in cells for record in cell]))


# Tables


def test_a_table_says_which_figures_are_of_which_data(remask: CommandLine) -> None:
    remask.add(*(held_out_record(seed=seed) for seed in (0, 1)))
    text = remask("results", "list").out
    lines = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    title, _, kinds, headings, _, row = lines[:6]
    assert title == ["split-digits, buffer 200, trials: 2, held out for validation: 10 %"]
    assert kinds == ["test", "test", "test", "test", "validation", "validation"]
    expected = "method, Class-IL A_T, F_T, Task-IL A_T, F_T, Class-IL A_T, Task-IL A_T"
    assert headings == expected.split(", ")
    assert row[0] == "ER"
    assert row[-2:] == ["60.00 ±0.00", "80.00 ±0.00"]
    told = remask("results", "list", "--trials").out
    assert "test Class-IL A_T 70.38, validation 60.00" in told


# Beside the paper


def test_a_trial_that_held_data_out_is_not_compared_with_the_paper(remask: CommandLine) -> None:
    (published,) = trial_configs(benchmark="split-mnist", method="er", buffer=200, seeds=[0])
    config = published.model_copy(update={"validation": 0.1})
    assert changed_settings(published) == {}
    assert changed_settings(config) == {"validation": 0.1}
    assert "--validation 0.1" in rerun_command(config, [0])
    remask.add(trial_with_accuracy(config, 78.27, validation=80.0))
    assert "Nothing is published" in remask("results", "compare").out


# The best cell


def test_the_best_cell_is_chosen_by_validation_and_shown_on_the_test_set() -> None:
    """The other one is better at the test, and that must not matter."""
    (line,) = choice(
        trials([80, 81, 82], [70, 71, 72], lr=0.1), trials([60, 61, 63], [90, 91, 92], lr=0.5)
    )
    assert line == (
        "best by validation: ER, lr=0.1 (validation Class-IL A_T 81.00 ±0.82, n=3); test: "
        "71.00 ±0.82. It differs significantly from every other cell (t-test at 5 %)."
    )


def test_a_choice_says_how_many_cells_do_not_differ() -> None:
    (line,) = choice(
        trials([80, 85, 81], [70, 71, 72], lr=0.1),
        trials([82, 80, 83], [70, 71, 72], lr=0.5),
        trials([20, 25, 21], [70, 71, 72], lr=0.01),
    )
    assert "best by validation: ER, lr=0.1 (" in line
    assert "difference from it (t-test at 5 %): 1 of 2." in line


def test_a_choice_between_equals_or_of_few_trials_says_so() -> None:
    (line,) = choice(
        trials([80, 82], [70, 72], lr=0.1),
        trials([82, 80], [75, 75], lr=0.5),
        trials([50, 50], [99, 99], lr=0.9),
    )
    assert "tied as best by validation: ER, lr=0.1 (" in line
    assert "test: 75.00 ±0.00. Fewer than 3 trials" in line


def test_a_choice_counts_what_diverged_or_failed() -> None:
    (lost,) = trials([99], [99], lr=0.1, seed=8)
    (line,) = choice(
        trials([80, 81], [70, 71], lr=0.1),
        [lost.model_copy(update={"status": "diverged", "diverged_at": 3})],
        trials([60, 61], [90, 91], lr=0.5),
        [failed(make_config(lr=3.0, validation=0.1))],
    )
    for part in ("A_T 80.50 ±0.50", "n=2, 1 diverged)", "Cells without a finished trial: 1."):
        assert part in line


def test_different_data_is_never_compared() -> None:
    lines = choice(
        trials([80], [70], lr=0.1),
        trials([70], [70], lr=0.2),
        trials([99], [70], lr=0.2, benchmark="split-mnist", validation=0.5),
    )
    assert [line.partition(" (")[0] for line in lines] == [
        "best by validation on benchmark=split-digits, validation=0.1: ER, lr=0.1",
        "nothing to choose on benchmark=split-mnist, validation=0.5: there is only one cell.",
    ]


def test_a_method_that_must_be_told_the_task_is_judged_by_task_il() -> None:
    def told(lr: float, accuracy: float) -> TrialRecord:
        unknown = [[math.nan] * 2] * 2
        return make_record(
            make_config(method="pnn", buffer=0, lr=lr, validation=0.1),
            class_il=unknown,
            validation_class_il=unknown,
            validation_task_il=[[accuracy, NAN], [accuracy, accuracy]],
        )

    (line,) = choice([told(0.1, 70.0)], [told(0.2, 90.0)])
    assert line.startswith("best by validation: PNN, lr=0.2 (validation Task-IL A_T 90.00, n=1)")


def test_nothing_is_chosen_where_nothing_has_finished_or_nothing_was_held_out() -> None:
    broken = [failed(make_config(lr=lr, validation=0.1)) for lr in (0.1, 0.2)]
    assert choice(broken) == ["nothing to choose: no trial has finished."]
    assert choice([make_record()], [make_record(make_config(lr=0.5))], [diverged()]) == []


# The commands


def test_a_sweep_names_the_best_cell_by_validation(remask: CommandLine, tmp_path: Path) -> None:
    grid = tmp_path / "grid.toml"
    grid.write_text("epochs = 1\nlimit = 15\ntrials = 2\n[grid]\nlr = [0.1, 1e-5]\n")
    answer = remask.succeed("sweep", str(grid), "--validation", "0.2", "--workers", "1")
    assert "best by validation: ER, lr=0.1 (validation Class-IL A_T" in answer.out
    assert all(len(record.validation_class_il) == 5 for record in remask.records())
    answer = remask("sweep", str(grid), "--workers", "1")
    assert "best" not in answer.out
    assert "add --validation 0.1" in answer.out


def test_a_run_with_validation_stores_and_resumes(remask: CommandLine, tmp_path: Path) -> None:
    config, file = tmp_path / "run.toml", tmp_path / "trials.json"
    config.write_text("validation = 0.2\ntrials = 2\n")
    answer = remask.succeed("run", *QUICK, "--config", str(config), "--output", str(file))
    assert "held out for validation: 20 %" in answer.out
    assert "test accuracy" in answer.err
    (first, second) = json.loads(file.read_text())["trials"]
    for trial in (first, second):
        matrix = trial["validation_class_il"]
        assert [[value is not None for value in row] for row in matrix] == [
            [task <= after for task in range(5)] for after in range(5)
        ]
        # Three samples of each class were held out, so six of each task.
        assert all(
            value is None or value * 6 / 100 == pytest.approx(round(value * 6 / 100))
            for row in matrix
            for value in row
        )
        assert trial["metrics"]["validation_class_il_A_T"] == pytest.approx(sum(matrix[-1]) / 5)
    assert "All 2 trials are in" in remask("run", *QUICK, "--config", str(config)).out
