"""Learners of features: heads in closed form, no memory, and exact forgetting."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from remask.learner import Learner
from remask.learner.folder import LearnerFolder
from remask.learner.manifest import read_manifest

Arrays = tuple[npt.NDArray[np.float32], list[str]]
DIMENSIONS = 24


def features(names: str, each: int = 40, seed: int = 0, noise: float = 1.6) -> Arrays:
    """Features of classes that overlap, each around a centre that its name decides."""
    random = np.random.default_rng(seed)
    centres = {name: np.random.default_rng(ord(name)).normal(size=DIMENSIONS) for name in names}
    labels = [name for name in names for _ in range(each)]
    labels = [labels[row] for row in random.permutation(len(labels))]
    spread = np.random.default_rng(1).normal(size=(DIMENSIONS, DIMENSIONS)) * noise / 4
    noise_rows = random.normal(size=(len(labels), DIMENSIONS)) @ spread
    return (np.stack([centres[name] for name in labels]) + noise_rows).astype(np.float32), labels


def create(folder: Path, **settings: Any) -> Learner:
    return Learner.create(folder, **{"memory": 400, "epochs": 2, **settings})


def taught(folder: Path, *visits: Arrays, **settings: Any) -> Learner:
    learner = create(folder, **settings)
    for number, (inputs, labels) in enumerate(visits):
        learner.learn(inputs, labels, name=f"visit-{number}")
    return learner


def without(data: Arrays, name: str) -> Arrays:
    rows = [row for row, own in enumerate(data[1]) if own != name]
    return data[0][rows], [data[1][row] for row in rows]


def assert_same_scores(one: Learner, other: Learner) -> None:
    inputs = torch.from_numpy(features("abcde", seed=9)[0])
    found, expected = (
        dict(zip(own.classes, own.net()(inputs).T, strict=True)) for own in (one, other)
    )
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        torch.testing.assert_close(found[name], values, atol=1e-5, rtol=1e-5)


SPREAD = [features("ab"), features("c", seed=1), features("abd", seed=2), features("ce", seed=3)]
"""Visits: c is alone in one and mixed with another class in another; a and b come back."""


@pytest.mark.parametrize(
    ("settings", "name", "order"),
    [
        ({"method": "ridge"}, "a", (0, 1, 2, 3)),
        ({"method": "slda"}, "c", (1, 0, 3, 2)),
        ({"memory": 0}, "e", (2, 1, 3, 0)),
        ({"memory": 0}, "c", (3, 2, 0, 1)),
    ],
)
def test_forgetting_gives_the_head_of_a_learner_that_never_saw_the_class(
    tmp_path: Path, settings: dict[str, Any], name: str, order: tuple[int, ...]
) -> None:
    visits = [SPREAD[place] for place in order]
    learner = taught(tmp_path / "with", *visits, **settings)
    forgotten = learner.forget(name)
    assert forgotten.exact
    assert "never saw the class" in str(forgotten)
    rest = [data for data in (without(data, name) for data in visits) if data[1]]
    assert_same_scores(learner, taught(tmp_path / "without", *rest, **settings))
    inputs = features("abcde", seed=9)[0]
    assert Learner.open(tmp_path / "with").predict(inputs) == learner.predict(inputs)


def test_visits_after_forgetting_do_not_depend_on_the_class(tmp_path: Path) -> None:
    learner = taught(tmp_path / "a", *SPREAD[:3], memory=0)
    learner.forget("b")
    learner.learn(*SPREAD[3], name="last")
    never = taught(tmp_path / "b", *(without(data, "b") for data in SPREAD), memory=0)
    assert_same_scores(learner, never)


@pytest.mark.parametrize("method", ["auto", "slda", "ncm"])
def test_without_a_memory_no_sample_is_in_any_file(tmp_path: Path, method: str) -> None:
    learner = taught(tmp_path / "a", *SPREAD, memory=0, method=method)
    assert learner.evaluate(*features("abcde", seed=9)).accuracy > 80
    manifest = read_manifest(tmp_path / "a")
    assert manifest.samples is None
    files = [path.read_bytes() for path in (tmp_path / "a").rglob("*") if path.is_file()]
    for inputs, _ in SPREAD:
        for row in inputs:
            assert not any(row.tobytes() in data for data in files)
            assert not any(row.astype(np.float64).tobytes() in data for data in files)
    assert learner.calibration is not None
    assert learner.history[-1].accuracy.keys() == set("abcde")


def test_the_order_of_visits_does_not_matter(tmp_path: Path) -> None:
    one = taught(tmp_path / "a", *SPREAD, memory=0)
    choice = one.history[-1].choice  # heads are not compared without a memory
    assert (choice.head, choice.why) == ("ridge", "as the learner was created")
    other = taught(tmp_path / "b", *SPREAD[::-1], memory=0)
    assert_same_scores(one, other)


def test_auto_compares_heads_and_reports_the_choice(tmp_path: Path) -> None:
    learner = taught(tmp_path / "a", *SPREAD)
    choice = learner.history[-1].choice
    assert choice.head == read_manifest(tmp_path / "a").head
    for name in ("ridge", "slda", "ER-EMA (replay)"):
        assert f"{name} " in choice.why
    assert choice.lr is not None
    assert learner.evaluate(*features("abcde", seed=9)).accuracy > 90


def test_held_out_samples_depend_on_their_class_alone(tmp_path: Path) -> None:
    everyone = features("abc")
    for number, data in enumerate((everyone, without(everyone, "b"))):
        learner = create(tmp_path / str(number), method="er")
        learner.learn(*data, name="0")
    kept = []
    for number in range(2):
        folder = LearnerFolder.open(tmp_path / str(number))
        state, names = folder.read_state(), folder.manifest.classes
        pairs = zip(state["held_out/labels"].tolist(), state["held_out/keys"].tolist(), strict=True)
        kept.append({(names[label], key) for label, key in pairs if names[label] != "b"})
    assert kept[0] == kept[1]
    assert len(kept[0]) == 8
