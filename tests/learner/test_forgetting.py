"""A class that is forgotten is in no file any more, and the others are as they were."""

import os
import random
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from remask.errors import RemaskError
from remask.learner import Learner, LearnerError, Progress
from remask.learner.manifest import MANIFEST
from tests.learner.samples import bits, blobs, create, taught
from tests.runs.faults import CrashError, FaultyDisk

VISITS = (["ant", "bee"], ["cat", "dog"], ["bee", "eel"])


def found_in(folder: Path, samples: npt.NDArray[np.uint8]) -> list[str]:
    """The files, in all of a folder, that have the bytes of some sample in them."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [
        path.name
        for path in files
        if any(sample.tobytes() in path.read_bytes() for sample in samples)
    ]


def samples_of(name: str) -> npt.NDArray[np.uint8]:
    """All samples of a class that were ever learnt."""
    found = [
        sample
        for number, names in enumerate(VISITS)
        for sample, own in zip(*blobs(names, seed=number), strict=True)
        if own == name
    ]
    return np.stack(found)


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
def test_the_samples_of_a_forgotten_class_are_in_no_file(
    tmp_path: Path, method: str, retrain: bool
) -> None:
    path = tmp_path / "a"
    learner = taught(path, *VISITS, method=method, memory=80, epochs=8)
    assert found_in(path, samples_of("bee"))
    before = learner.evaluate(*blobs(["ant", "cat", "dog", "eel"], seed=50))
    forgotten = learner.forget("bee", retrain=retrain)
    assert forgotten.samples > 5
    assert forgotten.retrained == retrain
    assert not found_in(path, samples_of("bee"))
    assert b'"bee"' not in (path / MANIFEST).read_bytes()
    assert found_in(path, samples_of("cat"))
    assert learner.classes == ("ant", "cat", "dog", "eel")
    after = learner.evaluate(*blobs(["ant", "cat", "dog", "eel"], seed=50))
    assert after.accuracy >= before.accuracy - (8 if retrain else 0)
    assert None not in learner.predict(blobs(["bee"])[0]).names
    assert ("not touched" in str(forgotten)) != retrain
    learner = Learner.open(path)
    visit = learner.learn(*blobs(["fox", "bee"], seed=7), name="later")
    assert visit.new_classes == ("bee", "fox")  # known no longer
    assert learner.classes == ("ant", "cat", "dog", "eel", "bee", "fox")
    assert learner.evaluate(*blobs(["fox", "bee"], seed=51)).accuracy > 60


def test_the_output_of_a_forgotten_class_says_nothing(tmp_path: Path) -> None:
    learner = taught(tmp_path / "a", *VISITS, method="er_ema")
    net = learner._ready()
    output = learner.classes.index("cat")
    kept = [column for column in range(5) if column != output]
    inputs = torch.from_numpy(blobs(["ant", "cat"], seed=9)[0]) / 255
    before = net.net(inputs)[:, :5]
    learner.forget("cat")
    after = learner._ready().net(inputs)[:, :5]
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
    assert not found_in(tmp_path / "a", blobs(["ant"])[0])
    with pytest.raises(LearnerError, match="not learnt anything"):
        learner.predict(blobs(["ant"])[0])
    visit = learner.learn(*blobs(["bee", "cat"]), name="anew")
    assert visit.new_classes == ("bee", "cat")


def test_an_unfinished_visit_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "a"

    def stop(progress: Progress) -> None:
        if progress.step == 3:
            raise KeyboardInterrupt

    learner = taught(path, *VISITS)
    inputs, labels = blobs(["bee"], seed=33)
    with pytest.raises(KeyboardInterrupt):
        learner.learn(inputs, labels, name="more", on_progress=stop)
    assert found_in(path, inputs)
    learner.forget("bee")
    assert not found_in(path, inputs)
    assert learner.unfinished is None


def test_what_cannot_be_forgotten_is_said(tmp_path: Path) -> None:
    learner = taught(tmp_path / "a", *VISITS)
    before = bits(tmp_path / "a")
    with pytest.raises(LearnerError, match="unknown class 'yak': the learner knows ant, bee"):
        learner.forget("yak")
    assert bits(tmp_path / "a") == before
    learner = taught(tmp_path / "b", ["ant", "bee"], method="icarl", mask=None)
    before = bits(tmp_path / "b")
    with pytest.raises(LearnerError, match="chooses itself what it keeps"):
        learner.forget("ant")
    assert bits(tmp_path / "b") == before
    learner = taught(tmp_path / "c", ["ant", "bee"], method="lwf", mask=None)
    with pytest.raises(LearnerError, match="keeps no samples to retrain from"):
        learner.forget("ant", retrain=True)
    learner.forget("ant")
    assert learner.classes == ("bee",)


def test_old_files_that_cannot_be_removed_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from remask import durable

    def refuse(path: Path) -> None:
        raise PermissionError

    learner = taught(tmp_path / "a", *VISITS)
    monkeypatch.setattr(durable, "_remove", refuse)
    with pytest.raises(LearnerError, match=r"is forgotten, but .* cannot be removed"):
        learner.forget("bee")
    assert "bee" not in learner.classes


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("before") / "a"
    taught(path, *VISITS)
    return path


@pytest.fixture(scope="module")
def after(tmp_path_factory: pytest.TempPathFactory, before: Path) -> Path:
    path = tmp_path_factory.mktemp("after") / "a"
    shutil.copytree(before, path)
    learner = Learner.open(path)
    learner.forget("bee", retrain=True)
    return path


@pytest.mark.faults
def test_a_crash_at_any_point_leaves_the_class_there_or_forgotten(
    tmp_path: Path, before: Path, after: Path
) -> None:
    old, new = bits(before), bits(after)
    for at in range(200):
        broken, path = tmp_path / "broken", tmp_path / "a"
        shutil.copytree(before, broken)
        disk = FaultyDisk(at, late=bool(at % 2))
        with pytest.MonkeyPatch.context() as monkeypatch:
            disk.install(monkeypatch)
            with suppress(RemaskError, CrashError):
                learner = Learner.open(broken)
                learner.forget("bee", retrain=True)
        shutil.copytree(broken, path)
        assert bits(path) in (old, new)
        learner = Learner.open(path)
        if "bee" in learner.classes:
            learner.forget("bee", retrain=True)
        assert bits(path) == new
        assert not found_in(path, samples_of("bee"))
        shutil.rmtree(path)
        shutil.rmtree(broken)
        if not disk.reached:
            return
    raise AssertionError("forgetting has no end of operations")


def forget_in_child(path: Path, seconds: float) -> bool:
    """Forget in a child process that is killed after some time; whether it was."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            learner = Learner.open(path)
            if "bee" in learner.classes:
                learner.forget("bee", retrain=True)
            code = 0
        finally:
            os._exit(code)
    time.sleep(seconds)
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code != 0


@pytest.mark.faults
def test_a_learner_killed_while_it_forgets_forgets_all_the_same(
    tmp_path: Path, before: Path, after: Path
) -> None:
    source = random.Random(3)
    old, new = bits(before), bits(after)
    killed = 0
    while killed < 25:
        path = tmp_path / str(killed)
        shutil.copytree(before, path, dirs_exist_ok=True)
        killed += forget_in_child(path, source.uniform(0, 0.35))
        assert bits(path) in (old, new)
        learner = Learner.open(path)
        if "bee" in learner.classes:
            learner.forget("bee", retrain=True)
        assert bits(path) == new
        assert not found_in(path, samples_of("bee"))
        shutil.rmtree(path)
