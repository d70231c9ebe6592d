"""The Split-MNIST cells of the paper's main table, for real: `make test-paper`."""

from pathlib import Path

import pytest

from remask.experiments import RunOptions
from remask.experiments.reproduction import configs_of
from remask.experiments.running import run_trials
from remask.papers.experiments import PaperCell, experiment_cells
from remask.reports.comparison import compare
from remask.store import Store, summarise


@pytest.mark.paper
@pytest.mark.parametrize("cell", experiment_cells("main", "split-mnist"), ids=str)
def test_split_mnist_agrees_with_the_paper(tmp_path: Path, cell: PaperCell) -> None:
    with Store(tmp_path / "results.db") as store:
        options = RunOptions(workers=2, stack=10, progress=False)
        assert not run_trials(store, configs_of(cell, None), options).failures
        (compared,) = compare([cell], summarise(store.records()))
    for measure in ("class_il_A_T", "task_il_A_T"):
        figure = compared.figures[measure]
        assert figure.is_near or figure.verdict == "no significant difference", (measure, figure)
