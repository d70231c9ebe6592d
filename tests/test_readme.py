"""What the README and the docs show runs as it stands, and is what their data says."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from remask.papers import experiment_cells, statements
from remask.report import compare, comparison_markdown, decide, paper_cell, verdicts
from remask.store import read_export, summarise

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


def test_the_published_reproduction_is_what_its_data_says() -> None:
    page = (ROOT / "docs" / "reproduction.md").read_text("utf-8")
    cells = summarise(read_export(ROOT / "docs" / "data" / "split-mnist.json"))
    assert sum(cell.trials for cell in cells) == 450
    compared = [
        cell
        for experiment in ("main", "low-buffer")
        for cell in compare(experiment_cells(experiment, "split-mnist"), cells)
    ]
    for row in comparison_markdown(compared).splitlines():
        assert row in page
    counts = verdicts(compared)
    assert (
        f"Of the {sum(counts.values())} published figures, {counts['reproduced']} lie within two "
        f"standard deviations of the claim, {counts['not told apart']} more cannot be told apart "
        f"from it, {counts['better']} is better and {counts['worse']} worse."
    ) in " ".join(page.split())


def test_the_published_findings_are_what_their_data_says() -> None:
    pytest.importorskip("scipy")
    page = (ROOT / "docs" / "reproduction.md").read_text("utf-8")
    cells = summarise(read_export(ROOT / "docs" / "data" / "split-mnist.json"))
    decisions = decide(statements("split-mnist"), {paper_cell(cell): cell for cell in cells})
    assert decisions
    for decision in decisions:
        holding = sum(evidence.finding == "holds" for evidence in decision.evidence)
        told = f"{decision.finding} | {holding} of {len(decision.evidence)}"
        assert f"| {decision.statement.text} | {told} |" in page
