"""What the README shows runs as it stands."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
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
