"""What the README and the docs show runs as it stands, and is what their data says."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from remask.names import system_name
from remask.papers import PaperCell, experiment_cells, statements
from remask.report import (
    ComparedCell,
    compare,
    comparison_markdown,
    decide,
    decide_by_the_paper,
    paper_cell,
    verdicts,
)
from remask.report.tables import write_spread
from remask.store import Cell, read_export, summarise

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
LOOP, ENGINE = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_six_lines_train_a_model_of_ones_own() -> None:
    model = torch.nn.Linear(5, 4)
    names: dict[str, Any] = {
        "torch": torch,
        "model": model,
        "x": torch.randn(6, 5),
        "y": torch.tensor([2, 3, 2, 3, 2, 3]),
        "x_replay": torch.randn(3, 5),
        "y_replay": torch.tensor([0, 1, 0]),
        "classes_of_this_task": [2, 3],
    }
    exec(LOOP, names)
    assert model.weight.grad is not None
    assert torch.isfinite(model.weight.grad).all()
    assert model.weight.grad.abs().sum() > 0


def test_the_engine_can_be_driven_from_python(capsys: pytest.CaptureFixture[str]) -> None:
    exec(ENGINE, {})
    accuracies = eval(capsys.readouterr().out)
    assert len(accuracies) == 10
    assert all(0 <= accuracy <= 100 for row in accuracies for accuracy in row)


# ---- Split-MNIST: the trials themselves are in docs/data ----------------------------------------


@pytest.fixture(scope="module")
def stored() -> dict[PaperCell, Cell]:
    cells = summarise(read_export(ROOT / "docs" / "data" / "split-mnist.json"))
    assert sum(cell.trials for cell in cells) == 450
    return {paper_cell(cell): cell for cell in cells}


@pytest.fixture(scope="module")
def published(stored: dict[PaperCell, Cell]) -> list[ComparedCell]:
    """Every cell of the main table and of the one of low buffers."""
    wanted = [c for name in ("main", "low-buffer") for c in experiment_cells(name, "split-mnist")]
    return compare(wanted, list(stored.values()))


def _page(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def _running_text(name: str) -> str:
    return " ".join(_page(name).split())


def test_the_published_reproduction_is_what_its_data_says(published: list[ComparedCell]) -> None:
    page = _page("docs/reproduction.md")
    for row in comparison_markdown(published).splitlines():
        assert row in page
    figures = [figure for cell in published for figure in cell.figures.values()]
    counts, near = verdicts(published), sum(figure.is_near for figure in figures)
    assert sum(counts.values()) == len(figures) == 96
    better, worse = counts["better"], counts["worse"]
    said = f"the {len(figures)} published figures, {near} lie within two standard deviations"
    assert f"Of {said} of the claim.**" in page
    assert said in _running_text("README.md")
    assert (
        f"does not tell {counts['not told apart']} from the claim; {better} are better and {worse} "
        f"worse, where chance alone would tell about 5 apart"
    ) in " ".join(page.split())
    assert (
        f"tells {better + worse} of them from ours, which is better in {better} and worse in "
        f"{worse}; chance alone would tell about 5"
    ) in _running_text("README.md")
    # Holm over all of them: the smallest p counts 96 times, the next 95 times.
    first, second = sorted(figure.test.p_different for figure in figures if figure.test)[:2]
    assert 96 * first < 0.05 < 95 * second
    assert "If all 96 are corrected together (Holm), only the first of these is" in page


def test_the_published_masking_values_are_what_their_data_says(
    stored: dict[PaperCell, Cell],
) -> None:
    page = _page("docs/reproduction.md")
    swept = {cell.mask for cell in experiment_cells("ablation", "split-mnist")}
    for mask in swept:
        row = [stored[PaperCell("split-mnist", "derpp", mask, size)] for size in (200, 500, 5120)]
        spreads = " | ".join(write_spread(cell.spreads["class_il_A_T"]) for cell in row)
        assert f"| {system_name('derpp', mask)} | {spreads} |" in page


def test_the_published_findings_are_what_their_data_says(stored: dict[PaperCell, Cell]) -> None:
    page = _page("docs/reproduction.md")
    asked = statements("split-mnist")
    decisions = decide(asked, stored)
    for decision, theirs in zip(decisions, decide_by_the_paper(asked), strict=True):
        holding = sum(evidence.finding == "holds" for evidence in decision.evidence)
        told = f"{decision.finding} | {holding} of {len(decision.evidence)} | paired"
        printed = "-" if theirs.finding == "not run" else theirs.finding
        assert f"| {decision.statement.text} | {told} | {printed} |" in page
        assert all(e.measured.test and e.measured.test.freedom == 9 for e in decision.evidence)
    found = [decision.finding for decision in decisions]
    assert found.count("contradicted") == 0
    assert (
        f"Of the paper's {len(found)} statements about this benchmark, our trials bear out "
        f"{found.count('holds')} and contradict none; for {found.count('undecided')} ten trials"
    ) in " ".join(page.split())
