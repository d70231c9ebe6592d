"""Masked against unmasked on your own trials, what of the paper is shown, and confusion."""

import math
from typing import Any

import pytest

from remask.papers.experiments import experiment_cells
from remask.reports.comparison import contrasts
from remask.reports.figures import plot
from remask.reports.page import plain_html
from remask.results import TrialRecord, summarise
from tests.reports.samples import report_data
from tests.results.store_samples import make_config, make_record, trial_with_accuracy


def trials(accuracies: list[float], **settings: Any) -> list[TrialRecord]:
    return [
        trial_with_accuracy(make_config(seed=seed, **settings), accuracy)
        for seed, accuracy in enumerate(accuracies)
    ]


def test_a_mask_is_tested_seed_by_seed() -> None:
    cells = summarise(trials([70, 80, 90]) + trials([71, 81.5, 91.2], mask=-1.0))
    [found] = contrasts(cells)
    assert (found.plain.label, found.masked.label) == ("ER", "MSER(-1)")
    higher = found.differences["class_il_A_T"]
    assert higher.mean == pytest.approx((1 + 1.5 + 1.2) / 3)
    assert higher.test is not None
    assert higher.test.kind == "paired"
    assert higher.verdict == "better"  # though the spread over seeds is far larger
    assert found.differences["class_il_F_T"].verdict == "no significant difference"  # 0 both


def test_less_forgetting_is_better_and_two_trials_are_too_few() -> None:
    def forgetful(forgetting: float, **settings: Any) -> list[TrialRecord]:
        return [
            trial_with_accuracy(make_config(seed=s, **settings), 50.0, forgetting=forgetting + s)
            for s in range(3)
        ]

    [found] = contrasts(summarise(forgetful(20.0) + forgetful(10.0, mask=-math.inf)))
    assert found.differences["class_il_F_T"].mean == pytest.approx(-10)
    assert found.differences["class_il_F_T"].verdict == "better"
    [few] = contrasts(summarise(trials([70, 80]) + trials([71, 81], mask=-1.0)))
    assert few.differences["class_il_A_T"].verdict == "too few trials"


def test_only_cells_that_differ_in_the_mask_alone_are_contrasted() -> None:
    cells = summarise(
        trials([70, 80], lr=0.1) + trials([71, 81], lr=0.2, mask=-1.0) + trials([1, 2], mask=-2.0)
    )
    assert [(c.plain.config.lr, c.masked.config.mask) for c in contrasts(cells)] == [(0.1, -2.0)]


def test_what_of_the_paper_was_not_run_is_listed_where_most_of_an_experiment_was() -> None:
    wanted = experiment_cells("low-buffer", "split-mnist")

    def shown(run: int) -> list[str | None]:
        records = []
        for cell in wanted[:run]:
            weights = {"alpha": 0.5, "beta": 0.5} if cell.method == "derpp" else {}
            own = {"method": cell.method, "mask": cell.mask, "buffer": cell.buffer, **weights}
            records.append(trial_with_accuracy(make_config(benchmark="split-mnist", **own), 80.0))
        return [cell["verdict"] for cell in report_data(records, published=True)["cells"]]

    few, most = shown(2), shown(len(wanted) - 1)
    assert len(few) == 2
    assert (len(most), most.count("not run")) == (len(wanted), 1)


def test_plain_tables_mark_the_best_and_cannot_be_broken_out_of() -> None:
    records = trials([70, 80]) + trials([90, 95], mask=-1.0)
    text = plain_html(report_data(records, published=True))
    assert "<strong>92.50 ±2.50</strong>" in text
    assert "<strong>75.00" not in text
    cell = {"benchmark": "<b>", "label": "<i>", "buffer": 0, "trials": 1, "scores": {}, "id": "x"}
    text = plain_html({"cells": [cell], "measures": {"class_il_A_T": "<u>"}})
    assert not any(tag in text for tag in ("<b>", "<i>", "<u>"))
    assert plain_html({}) == ""


def test_a_confusion_matrix_is_the_mean_share_of_answers_in_the_order_of_learning() -> None:
    first = [[4, 0, 0, 0], [0, 2, 2, 0], [0, 0, 4, 0], [1, 0, 0, 3]]
    second = [[2, 2, 0, 0], [0, 4, 0, 0], [0, 0, 4, 0], [0, 0, 0, 4]]
    records = [
        make_record(make_config(seed=seed), answers={"confusion": counts}, tasks=((2, 0), (1, 3)))
        for seed, counts in enumerate((first, second))
    ]
    [figure] = [
        f for f in report_data(records, published=True)["figures"] if f["key"] == "confusion"
    ]
    [panel] = figure["panels"]
    assert panel["x"]["places"] == ("2", "0", "1", "3")
    [heat] = panel["marks"]
    found = dict(zip(zip(heat["y"], heat["x"], strict=True), heat["values"], strict=True))
    assert found == {
        **{(0, 0): 100.0, (1, 1): 75.0, (1, 2): 25.0},
        **{(2, 2): 75.0, (2, 0): 25.0, (3, 3): 87.5, (3, 1): 12.5},
    }
    assert plot(summarise(records), "confusion") is not None


def test_of_many_classes_the_tasks_are_confused() -> None:
    classes = 22
    confusion = [[int(a == b) for a in range(classes)] for b in range(classes)]
    confusion[0] = [0] * (classes - 1) + [1]
    record = make_record(confidence=[0.5] * classes, answers={"confusion": confusion})
    [figure] = [f for f in report_data([record])["figures"] if f["key"] == "confusion"]
    [panel] = figure["panels"]
    assert panel["x"]["places"] == ("task 1", "task 2")
    assert panel["marks"][0]["values"] == pytest.approx((1000 / 11, 100 / 11, 100.0), abs=1e-3)
