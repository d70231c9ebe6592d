"""A forgotten class is in no file any more, and the others are as they were."""

from pathlib import Path

import pytest
import torch

from remask.learner import Learner, LearnerError
from remask.learner.manifest import MANIFEST
from tests.learner.samples import (
    VISITS,
    bits,
    blobs,
    create,
    files_with,
    interrupted,
    samples_of,
    taught,
)


@pytest.mark.parametrize(
    ("method", "retrain"),
    [
        ("derpp", False),
        ("er_ema", True),
        *(
            pytest.param(method, retrain, marks=pytest.mark.slow)
            for method, retrain in (("er", False), ("er", True), ("er_ema", False), ("derpp", True))
        ),
    ],
)
def test_forgotten_samples_are_in_no_file(tmp_path: Path, method: str, retrain: bool) -> None:
    path, others = tmp_path / "a", ["ant", "cat", "dog", "eel"]
    learner = taught(path, *VISITS, method=method, memory=80, epochs=8)
    assert files_with(path, samples_of("bee"))
    before = learner.evaluate(*blobs(others, seed=50))
    forgotten = learner.forget("bee", retrain=retrain)
    assert forgotten.samples > 5
    assert forgotten.retrained == retrain
    assert ("not touched" in str(forgotten)) != retrain
    assert not files_with(path, samples_of("bee"))
    assert b'"bee"' not in (path / MANIFEST).read_bytes()
    assert files_with(path, samples_of("cat"))
    assert learner.classes == tuple(others)
    after = learner.evaluate(*blobs(others, seed=50))
    assert after.accuracy >= before.accuracy - (8 if retrain else 0)
    assert None not in learner.predict(blobs(["bee"])[0]).names
    learner = Learner.open(path)
    visit = learner.learn(*blobs(["fox", "bee"], seed=7), name="later")
    assert visit.new_classes == ("bee", "fox")
    assert learner.classes == (*others, "bee", "fox")
    assert learner.evaluate(*blobs(["fox", "bee"], seed=51)).accuracy > 60


def test_the_output_of_a_forgotten_class_is_zero_and_others_are_unchanged(tmp_path: Path) -> None:
    learner = taught(tmp_path / "a", *VISITS, method="er_ema")
    output = learner.classes.index("cat")
    kept = [column for column in range(5) if column != output]
    inputs = torch.from_numpy(blobs(["ant", "cat"], seed=9)[0]) / 255
    before = learner._predictor().scorer.net(inputs)[:, :5]
    learner.forget("cat")
    after = learner._predictor().scorer.net(inputs)[:, :5]
    assert torch.equal(after[:, kept], before[:, kept])
    assert torch.equal(after[:, output], torch.zeros(len(inputs)))
    assert learner.calibration is not None


def test_the_same_picture_of_another_class_stays(tmp_path: Path) -> None:
    inputs, labels = blobs(["ant", "bee"], each=10)
    learner = create(tmp_path / "a", memory=100)
    learner.learn(inputs, labels, name="0")
    learner.learn(inputs, ["twin"] * len(inputs), name="1")
    learner.forget("ant")
    assert learner.classes == ("bee", "twin")


def test_the_last_class_can_be_forgotten(tmp_path: Path) -> None:
    learner = taught(tmp_path / "a", ["ant"])
    learner.forget("ant")
    assert learner.classes == ()
    assert not files_with(tmp_path / "a", samples_of("ant", [["ant"]]))
    with pytest.raises(LearnerError, match="not learnt anything"):
        learner.predict(blobs(["ant"])[0])
    visit = learner.learn(*blobs(["bee", "cat"]), name="again")
    assert visit.new_classes == ("bee", "cat")


def test_an_unfinished_visit_is_discarded(tmp_path: Path) -> None:
    learner = taught(tmp_path / "a", *VISITS)
    interrupted(learner, ["bee"], seed=33)
    samples = [sample.tobytes() for sample in blobs(["bee"], seed=33)[0]]
    assert files_with(tmp_path / "a", samples)
    learner.forget("bee")
    assert not files_with(tmp_path / "a", samples)
    assert learner.unfinished is None


@pytest.mark.parametrize(
    ("method", "name", "retrain", "message"),
    [
        ("er", "yak", False, "unknown class 'yak': the learner knows ant, bee"),
        ("icarl", "ant", False, "chooses itself what it keeps"),
        ("lwf", "ant", True, "keeps no samples to retrain from"),
    ],
)
def test_a_class_that_cannot_be_forgotten_is_an_error_that_changes_nothing(
    tmp_path: Path, method: str, name: str, retrain: bool, message: str
) -> None:
    learner = taught(tmp_path / "a", ["ant", "bee"], method=method, mask=None)
    before = bits(tmp_path / "a")
    with pytest.raises(LearnerError, match=message):
        learner.forget(name, retrain=retrain)
    assert bits(tmp_path / "a") == before
    if method == "lwf":
        learner.forget("ant")
        assert learner.classes == ("bee",)
