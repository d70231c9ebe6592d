"""Learners that earlier versions wrote are opened, predict the same, and learn on.

`python -m tests.learner.test_older_versions FOLDER` writes one as this version does. What is in
tests/data is never written again: a new version adds a folder of its own.
"""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from remask.learner import Learner
from tests.learner.samples import blobs

DATA = Path(__file__).parents[1] / "data"
SAID = "said.json"


@pytest.mark.parametrize("version", ["learner-0.2"])
def test_a_learner_of_an_earlier_version_predicts_learns_and_forgets(
    tmp_path: Path, version: str
) -> None:
    path = tmp_path / "a"
    shutil.copytree(DATA / version, path, ignore=shutil.ignore_patterns(SAID))
    expected = json.loads((DATA / version / SAID).read_text())
    inputs = np.array(expected["inputs"], dtype=np.uint8)
    with Learner.open(path) as learner:
        said = learner.predict(inputs)
        assert said.names == expected["names"]
        assert said.probabilities == pytest.approx(expected["probabilities"], abs=1e-4)
        assert [visit.name for visit in learner.history] == ["visit-0", "visit-1"]
        learner.learn(*blobs(["dog", "ant"], seed=2), name="third")
        assert learner.classes == ("ant", "bee", "cat", "dog")
        assert learner.history[-1].before.keys() == {"ant", "bee", "cat"}
        learner.forget("bee")
        assert learner.evaluate(*blobs(["ant", "cat", "dog"], seed=3)).accuracy > 60


def write(path: Path) -> None:
    """Write a small learner of all kinds of files, and what it says."""
    with Learner.create(path, net="linear", memory=40, epochs=6) as learner:
        for number, names in enumerate((["ant", "bee"], ["cat"])):
            learner.learn(*blobs(names, each=20, seed=number), name=f"visit-{number}")
        inputs = blobs(["ant", "bee", "cat"], each=2, seed=9)[0]
        said = learner.predict(inputs)
    told = {"names": said.names, "probabilities": said.probabilities, "inputs": inputs.tolist()}
    (path / SAID).write_text(json.dumps(told) + "\n")
    for lock in path.glob("learner.lock*"):
        lock.unlink()


if __name__ == "__main__":
    write(Path(sys.argv[1]))
