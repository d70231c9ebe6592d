"""Heads have as many outputs as there are classes, and grow with them."""

from pathlib import Path

import pytest
import torch

from remask.learner import Learner, Progress
from remask.learner.manifest import read_manifest
from tests.learner.samples import bits, blobs, create

FIRST = [f"a{number}" for number in range(12)]
SECOND = [f"b{number}" for number in range(9)]


def outputs(path: Path) -> int:
    return read_manifest(path).outputs


@pytest.mark.parametrize(
    "method", ["derpp", *(pytest.param(n, marks=pytest.mark.slow) for n in ("er_ema", "lwf"))]
)
def test_a_head_grows_and_what_was_known_stays_known(tmp_path: Path, method: str) -> None:
    path = tmp_path / "a"
    learner = create(path, memory=150, method=method, mask=None)
    learner.learn(*blobs(FIRST, each=12), name="first")
    assert outputs(path) == 12
    learner.learn(*blobs(SECOND, each=12, seed=1), name="second")
    assert outputs(path) == 21
    assert len(learner.classes) == 21
    said = learner.predict(blobs(SECOND, each=2, seed=5)[0], top=21)
    again = Learner.open(path)
    assert again.predict(blobs(SECOND, each=2, seed=5)[0], top=21) == said
    again.learn(*blobs(["c"], seed=2), name="third")
    assert outputs(path) == 22


def test_a_head_of_few_classes_has_ten_outputs(tmp_path: Path) -> None:
    learner = create(tmp_path / "a", memory=40, epochs=1)
    learner.learn(*blobs(["ant", "bee"]), name="first")
    assert outputs(tmp_path / "a") == 10


def test_growing_by_itself_changes_nothing_that_is_said_of_known_classes(tmp_path: Path) -> None:
    path = tmp_path / "a"
    learner = create(path, memory=100, lr=1e-30, epochs=1)
    learner.learn(*blobs(FIRST, each=12), name="first")
    inputs = blobs(FIRST, each=3, seed=5)[0]
    seen = torch.from_numpy(inputs) / 255
    before = learner._ready().net(seen)[:, :12]
    learner.learn(*blobs(SECOND, each=12, seed=1), name="second")
    after = learner._ready().net(seen)
    assert torch.equal(after[:, :12], before)
    assert after[:, 12:].abs().max() < 1e-20


def test_a_visit_that_grows_the_head_goes_on_after_a_stop(tmp_path: Path) -> None:
    def stop(progress: Progress) -> None:
        if progress.step == 4:
            raise KeyboardInterrupt

    for name in "ab":
        learner = create(tmp_path / name, memory=60, method="derpp")
        learner.learn(*blobs(FIRST, each=8), name="first")
        if name == "b":
            with pytest.raises(KeyboardInterrupt):
                learner.learn(*blobs(SECOND, each=8), name="second", on_progress=stop)
            assert outputs(tmp_path / name) == 12
        learner.learn(*blobs(SECOND, each=8), name="second")
    assert bits(tmp_path / "a") == bits(tmp_path / "b")
