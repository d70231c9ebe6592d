"""The memory of a learner: real samples, of every class, never more than its size."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from remask.learner import LearnerError
from remask.learner.folder import LearnerFolder
from remask.memory import fair_shares
from tests.learner.samples import blobs, create


class Kept:
    """The samples in the files of a learner."""

    def __init__(self, path: Path) -> None:
        folder = LearnerFolder.open(path)
        tensors, classes = folder.read_state(), folder.manifest.classes
        filled = tensors["memory/labels"] >= 0
        self.replayed = tensors["memory/sources"][filled].tolist()
        self.held_out = tensors["held_out/sources"].tolist()
        labels = [*tensors["memory/labels"][filled].tolist(), *tensors["held_out/labels"].tolist()]
        self.names = [str(classes[label]) for label in labels]
        self.samples = folder.samples().read(np.array(self.replayed + self.held_out))
        note = folder.manifest.samples
        assert note is not None
        self.rows, self.bytes = note.rows, (path / note.name).stat().st_size


def test_it_keeps_real_samples_with_their_classes_each_once(tmp_path: Path) -> None:
    visits = [blobs([f"{a}{b}" for b in "xy"], seed=n) for n, a in enumerate("abcde")]
    learner = create(tmp_path / "a", memory=60, epochs=1)
    for number, data in enumerate(visits):
        learner.learn(*data, name=str(number))
    kept = Kept(tmp_path / "a")
    real = {
        (sample.tobytes(), name)
        for inputs, labels in visits
        for sample, name in zip(inputs, labels, strict=True)
    }
    samples = map(np.ndarray.tobytes, kept.samples)
    stored = list(zip(samples, kept.names, strict=True))
    assert set(stored) <= real
    assert len(set(stored)) == len(stored) == 60
    assert set(kept.replayed).isdisjoint(kept.held_out)
    assert len(kept.held_out) == 6


def test_unequal_classes_share_the_memory_fairly(tmp_path: Path) -> None:
    learner = create(tmp_path / "a", memory=60, epochs=1, batch=50)
    for number, (name, each) in enumerate(
        [("rare", 5), ("common", 1000), ("usual", 100), ("common", 300)]
    ):
        learner.learn(*blobs([name], each=each, seed=number), name=str(number))
    kept = Kept(tmp_path / "a")
    counts = Counter(kept.names)
    assert counts["rare"] == 5
    assert 24 <= counts["usual"] <= 30
    assert counts.total() == 60
    shares = Counter(kept.names[len(kept.replayed) :])
    assert shares["rare"] == 1
    assert abs(shares["usual"] - shares["common"]) <= 1


def test_a_memory_can_be_given_in_bytes(tmp_path: Path) -> None:
    data = blobs(["ant", "bee"])
    create(tmp_path / "a", memory="0.9 kB", epochs=1).learn(*data, name="0")
    kept = Kept(tmp_path / "a")  # 25 images of 36 bytes
    assert (len(kept.replayed), len(kept.held_out)) == (23, 2)
    with pytest.raises(LearnerError, match="too small for a sample of 36 bytes"):
        create(tmp_path / "b", memory="20 B").learn(*data, name="0")


def test_places_are_divided_fairly() -> None:
    assert fair_shares([0, 100, 2, 50], 12) == [0, 5, 2, 5]
    assert fair_shares([3, 3], 100) == [3, 3]
    assert fair_shares([255, 1, 143, 1], 34) == [16, 1, 16, 1]
    assert fair_shares([5, 5, 5], 2) == [1, 1, 0]
    assert fair_shares([], 5) == []
