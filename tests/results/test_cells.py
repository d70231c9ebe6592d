"""Cells of trials that have not all learnt the same tasks."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from remask.reports.tables import results_table
from remask.results import Cell, Store, TrialRecord, summarise
from tests.command_line import CommandLine
from tests.reports.test_report import data_of
from tests.results.store_samples import NAN, failed, make_config, make_record


def _of(number: int, seed: int, mask: float | None = None, **parts: Any) -> TrialRecord:
    """A trial of so many tasks of two classes each."""
    matrix = [[50.0 + number if k <= j else NAN for k in range(number)] for j in range(number)]
    config = make_config(benchmark="mine:data", seed=seed, mask=mask)
    made = make_record(config, class_il=matrix, task_il=matrix, confidence=[0.5] * (2 * number))
    return made.model_copy(update=parts)


def _shown(records: Sequence[TrialRecord]) -> dict[str, list[int]]:
    return {cell.label: [record.seed for record in cell.records] for cell in summarise(records)}


def test_trials_of_a_benchmark_that_got_another_task_are_not_averaged_together() -> None:
    records = [_of(2, 0), _of(3, 1), _of(2, 2), failed(make_config(benchmark="mine:data", seed=3))]
    two, three = summarise(records)
    assert [two.label, three.label] == ["ER, 2 tasks", "ER, 3 tasks"]
    assert [two.trials, three.trials, three.failed] == [2, 1, 1]
    assert two.spreads["class_il_A_T"].mean == 52
    assert three.spreads["class_il_A_T"].mean == 53
    assert three.tasks == ((0, 1), (2, 3), (4, 5))


def test_trials_whose_classes_were_dealt_or_called_otherwise_are_not_averaged_together() -> None:
    later = datetime(2027, 1, 1, tzinfo=UTC)
    other = _of(2, 1, tasks=((3, 2), (1, 0)), created=later)
    renamed = _of(2, 2, class_names=("a", "b", "c", "d"), created=later)
    assert _shown([_of(2, 0), other]) == {"ER, 2 tasks (1)": [0], "ER, 2 tasks (2)": [1]}
    assert _shown([renamed, _of(2, 0)]) == {"ER, 2 tasks (1)": [0], "ER, 2 tasks (2)": [2]}


def test_trials_that_all_failed_are_a_cell() -> None:
    (cell,) = summarise([failed()])
    assert (cell.label, cell.failed, cell.tasks) == ("ER", 1, None)


@pytest.mark.thorough
def test_a_store_whose_benchmark_changed_is_listed_and_reported_task_number_by_task_number(
    remask: CommandLine, tmp_path: Path
) -> None:
    with Store(remask.store) as store:
        for seed in range(6):
            for mask in (None, -1.0):
                store.add(_of(2 + seed % 2, seed, mask))
    listed = remask("results", "list")
    assert listed.code == 0, listed.err
    for row in ("ER, 2 tasks 52.00", "ER, 3 tasks 53.00", "MSER(-1), 2 tasks", "MSER(-1), 3 tasks"):
        assert row in listed.text
    page = tmp_path / "page.html"
    answer = remask("report", str(page), "--figures", str(tmp_path / "figures"))
    assert answer.code == 0, answer.err
    cells = data_of(page)["cells"]
    assert [(cell["label"], cell["trials"]) for cell in cells] == [
        ("ER, 2 tasks", 3),
        ("MSER(-1), 2 tasks", 3),
        ("ER, 3 tasks", 3),
        ("MSER(-1), 3 tasks", 3),
    ]
    assert len({cell["id"] for cell in cells}) == 4
    assert cells[2]["tasks"] == [[0, 1], [2, 3], [4, 5]]
    assert cells[2]["class_names"] == ["0", "1", "2", "3", "4", "5"]


def test_a_cell_says_that_its_trials_ran_on_different_kinds_of_hardware() -> None:
    def cell(*machines: dict[str, str]) -> Cell:
        (only,) = summarise(
            make_record(make_config(seed=seed), machine=machine)
            for seed, machine in enumerate(machines)
        )
        return only

    epyc, xeon = {"processor": "EPYC", "host": "a"}, {"processor": "Xeon", "host": "b"}
    graphics = {"processor": "EPYC", "device": "A100"}
    assert cell(epyc, {**epyc, "host": "c"}, {}).hardware == ("EPYC, torch 2.6.0",)
    assert cell(epyc, xeon).hardware == ("EPYC, torch 2.6.0", "Xeon, torch 2.6.0")
    assert cell(epyc, graphics).hardware == ("A100, torch 2.6.0", "EPYC, torch 2.6.0")
    assert "2, on 2 kinds of hardware" in str(results_table([cell(epyc, xeon)]))
    assert "hardware" not in str(results_table([cell(epyc, epyc)]))
