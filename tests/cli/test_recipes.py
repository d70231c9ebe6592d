"""The recipes for other people's loops run as they stand, and the mask helps in each of them."""

import importlib
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from remask import Learner, ReplayMemory
from tests.command_line import run_process
from tests.repository import ROOT

EXAMPLES = ROOT / "examples"
_PATH = {"PYTHONPATH": str(EXAMPLES)}
PAGE = (ROOT / "docs" / "recipes.md").read_text("utf-8")
_SAID = re.compile(r"^(with\S*) the mask: (\d+\.\d)% of old classes, (\d+\.\d)% of all$", re.M)
_HELPS = 3.0
"""Points that the mask must win on old classes; as measured for the page, it wins four and more."""


def _run(folder: Path, *command: str) -> str:
    return run_process(sys.executable, *command, folder=folder, environment=_PATH).stdout


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("pytorch", marks=pytest.mark.slow),
        pytest.param("lightning", marks=pytest.mark.integrations),
        pytest.param("transformers", marks=pytest.mark.integrations),
        pytest.param("lora", marks=pytest.mark.integrations),
    ],
)
def test_in_every_recipe_the_mask_keeps_more_of_the_old_classes(name: str, tmp_path: Path) -> None:
    printed = _run(tmp_path, str(EXAMPLES / f"recipe_{name}.py"))
    old = {word: float(share) for word, share, _ in _SAID.findall(printed)}
    assert set(old) == {"with", "without"}
    assert old["with"] >= old["without"] + _HELPS


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Photographs of three sizes whose classes differ in colour: CLASS/NAME.jpg, NAME.png."""
    random = np.random.default_rng(3)
    for name, colour in {
        "red": (200, 40, 40),
        "green": (30, 190, 60),
        "blue": (40, 60, 210),
    }.items():
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(24):
            shape = [(40, 60), (64, 64), (300, 260)][number % 3]
            pixels = np.array(colour) + random.integers(-40, 41, (*shape, 3))
            image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
            image.save(tmp_path / "photos" / name / f"{number}.{'jpg' if number % 2 else 'png'}")
    return tmp_path / "photos"


@pytest.fixture
def learner(photos: Path, tmp_path: Path) -> Learner:
    learner = Learner.create(tmp_path / "colours", encoder=_small_encoder(), method="ridge")
    learner.learn(photos, name="first")
    return learner


def _small_encoder() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
    )


@pytest.mark.integrations
def test_an_onnx_file_runs_without_torch(learner: Learner, photos: Path, tmp_path: Path) -> None:
    learner.export(tmp_path / "colours.onnx", "onnx")
    files = sorted(map(str, photos.glob("*/*")))[::5]
    script = f"""
import sys
sys.modules["torch"] = sys.modules["remask"] = None
import runpy
sys.argv = ["recipe_onnx.py", "colours.onnx", *{files!r}]
runpy.run_path({str(EXAMPLES / "recipe_onnx.py")!r}, run_name="__main__")
"""
    printed = _run(tmp_path, "-c", script).splitlines()
    found = learner.predict(files)
    for line, file, name, share in zip(
        printed, files, found.names, found.probabilities, strict=True
    ):
        assert line.startswith(f"{file}: {name} ")
        assert float(line.split()[2].rstrip("%")) == pytest.approx(100 * share, abs=0.1)
    with pytest.raises(AssertionError, match="torch"):  # the process really has none
        _run(tmp_path, "-c", script.replace("import runpy", "import torch"))


@pytest.mark.integrations
def test_a_learner_is_served_and_follows_what_others_learn(
    learner: Learner, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fastapi.testclient import TestClient

    monkeypatch.syspath_prepend(EXAMPLES)
    serve = importlib.import_module("recipe_serve").serve
    served = Learner.open(tmp_path / "colours", encoder=_small_encoder())
    client = TestClient(serve(served, abstain=0.6, unknown=0.2))
    assert client.get("/").json() == {"classes": ["blue", "green", "red"], "visits": 1}
    image = sorted(photos.glob("red/*"))[0]
    answer = client.post("/predict", files={"file": image.read_bytes()})
    assert answer.status_code == 200
    (expected,) = learner.predict([image], abstain=0.6, unknown=0.2)
    assert answer.json()["top"][0]["name"] == "red"
    assert answer.json()["probability"] == pytest.approx(expected.probability)
    assert answer.json()["unknown"] == expected.unknown
    damaged = client.post("/predict", files={"file": ("holiday.jpg", b"not an image")})
    assert damaged.status_code == 422
    assert "holiday.jpg: not a PNG" in damaged.json()["detail"]
    large = client.post("/predict", files={"file": bytes(21 << 20)})
    assert large.status_code == 413
    (photos.parent / "more").mkdir()
    (photos / "red").rename(photos.parent / "more" / "crimson")
    learner.learn(photos.parent / "more", name="second")
    assert client.get("/").json()["classes"] == ["blue", "green", "red", "crimson"]
    moved = photos.parent / "more" / "crimson" / image.name
    again = client.post("/predict", files={"file": moved.read_bytes()})
    assert {each["name"] for each in again.json()["top"]} >= {"crimson", "red"}
    assert again.json()["visits"] == 2


BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_what_the_page_of_recipes_shows_is_in_the_files_that_are_run() -> None:
    files = {path.name: path.read_text("utf-8") for path in EXAMPLES.glob("recipe_*.py")}
    assert len(BLOCKS) == 8
    for block in BLOCKS[1:]:  # the first shows the memory by itself
        assert any(_undented(block) in _undented(text) for text in files.values()), block
    for name in set(files) - {"recipe_digits.py"}:
        assert f"../examples/{name}" in PAGE


def _undented(text: str) -> str:
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


def test_the_memory_is_as_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"x": torch.randn(6, 5), "y": torch.arange(6), "torch": torch}
    exec(BLOCKS[0], names)
    assert sorted(names["old"].labels.tolist()) == [0, 1, 2, 3, 4, 5]
    again = ReplayMemory(capacity=500, policy="balanced", seed=0)
    again.load_state_dict(torch.load("memory.pt", weights_only=True))
    assert torch.equal(again.draw(3).labels, names["memory"].draw(3).labels)
