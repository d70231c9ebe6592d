"""The recipes for other people's loops run as they stand, and the mask helps in each of them."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from remask import ReplayMemory
from tests.repository import ROOT

EXAMPLES = ROOT / "examples"
PAGE = (ROOT / "docs" / "recipes.md").read_text("utf-8")
_SAID = re.compile(r"^(with\S*) the mask: (\d+\.\d)% of old classes, (\d+\.\d)% of all$", re.M)
_HELPS = 3.0
"""Points that the mask must win on old classes; as measured for the page, it wins four and more."""


def _run(folder: Path, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(EXAMPLES)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("pytorch", marks=[pytest.mark.processes, pytest.mark.thorough]),
        pytest.param("lightning", marks=pytest.mark.integrations),
        pytest.param("transformers", marks=pytest.mark.integrations),
    ],
)
def test_in_every_recipe_the_mask_keeps_more_of_the_old_classes(name: str, tmp_path: Path) -> None:
    printed = _run(tmp_path, str(EXAMPLES / f"recipe_{name}.py"))
    old = {word: float(share) for word, share, _ in _SAID.findall(printed)}
    assert set(old) == {"with", "without"}
    assert old["with"] >= old["without"] + _HELPS


@pytest.mark.integrations
def test_a_lightning_checkpoint_brings_the_memory_back(tmp_path: Path) -> None:
    script = """
import lightning, torch
from torch.utils.data import DataLoader, TensorDataset
from recipe_digits import tasks
from recipe_lightning import MaskedReplay

classes, inputs, labels = next(tasks())
module = MaskedReplay()
module.active = classes
trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", logger=False)
trainer.fit(module, DataLoader(TensorDataset(inputs, labels), batch_size=10))
trainer.save_checkpoint("saved.ckpt")
back = MaskedReplay.load_from_checkpoint("saved.ckpt")
assert len(back.memory) == len(module.memory) == 100
for drawn, again in zip(module.memory.draw(10)[:2], back.memory.draw(10)[:2], strict=True):
    assert torch.equal(drawn, again)
print("the same")
"""
    assert _run(tmp_path, "-c", script).endswith("the same\n")


BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_what_the_page_of_recipes_shows_is_in_the_files_that_are_run() -> None:
    files = {path.name: path.read_text("utf-8") for path in EXAMPLES.glob("recipe_*.py")}
    assert len(BLOCKS) == 5
    for block in BLOCKS[1:]:  # the first shows the memory by itself
        assert any(_undented(block) in _undented(text) for text in files.values()), block
    for name in set(files) - {"recipe_digits.py"}:
        assert f"../examples/{name}" in PAGE


def _undented(text: str) -> str:
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


def test_the_memory_by_itself_works_as_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"x": torch.randn(6, 5), "y": torch.arange(6), "torch": torch}
    exec(BLOCKS[0], names)
    assert sorted(names["old"].labels.tolist()) == [0, 1, 2, 3, 4, 5]
    again = ReplayMemory(capacity=500, policy="balanced", seed=0)
    again.load_state_dict(torch.load("memory.pt", weights_only=True))
    assert torch.equal(again.draw(3).labels, names["memory"].draw(3).labels)
