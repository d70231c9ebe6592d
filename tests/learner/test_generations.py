"""Earlier generations are kept: visits are undone, and classes renamed, in all of them."""

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from remask.errors import RemaskError
from remask.learner import Learner, LearnerError, Progress
from remask.learner.manifest import MANIFEST, read_manifest
from tests.learner.samples import bits, blobs, create, taught
from tests.runs.faults import CrashError, FaultyDisk

VISITS = (["ant", "bee"], ["cat", "dog"], ["bee", "eel"])
Change = Callable[[Learner], object]


def now(path: Path) -> dict[str, object]:
    """What a learner is, apart from the generations that it keeps."""
    found = bits(path)
    del found["earlier"]
    return found


def stopped_visit(learner: Learner) -> None:
    def stop(progress: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learner.learn(*blobs(["fox"]), name="stopped", on_progress=stop)


def test_undo_goes_back_visit_by_visit_to_the_same_bits(tmp_path: Path) -> None:
    path = tmp_path / "a"
    learner, states = create(path), [now(path)]
    for number, names in enumerate(VISITS):
        learner.learn(*blobs(names, seed=number), name=f"visit-{number}")
        states.append(now(path))
    inputs = blobs(["ant", "cat", "eel"], seed=9)[0]
    said = learner.predict(inputs)
    reader = Learner.open(path)
    undone = learner.undo()
    assert (undone.visit, undone.removed) == ("visit-2", ("eel",))
    assert str(undone) == "undid visit-2: 4 classes known; no longer known: eel"
    assert now(path) == states[2]
    assert "eel" not in learner.predict(inputs).names
    assert reader.classes == ("ant", "bee", "cat", "dog", "eel")
    learner.learn(*blobs(VISITS[2], seed=2), name="visit-2")
    assert now(path) == states[3]
    assert learner.predict(inputs) == said
    generation = read_manifest(path).generation
    for state in states[2::-1]:
        learner.undo()
        assert now(path) == state
    assert read_manifest(path).generation == generation + 3
    assert sorted(p.name for p in path.iterdir() if p.name != "learner.lock") == [MANIFEST]
    with pytest.raises(LearnerError, match="no earlier generation to return to"):
        learner.undo()


def test_as_many_generations_are_kept_as_was_set_and_their_files_alone(tmp_path: Path) -> None:
    path = tmp_path / "a"
    learner = create(path, keep_generations=2, memory=30, epochs=1)
    for number in range(6):
        learner.learn(*blobs([f"{number}"], each=10), name=f"v{number}")
        manifest = read_manifest(path)
        assert len(manifest.earlier) == min(number + 1, 2)
        there = {p.name for p in path.iterdir()} - {MANIFEST, "learner.lock"}
        assert there == {note.name for note in manifest.files}
        assert sum(p.stat().st_size for p in path.glob("samples-*")) <= 3 * 2 * (30 * 36 + 128 * 6)
    learner.undo()
    learner.undo()
    assert learner.classes == ("0", "1", "2", "3")
    with pytest.raises(LearnerError, match="keeps at most 2"):
        learner.undo()
    assert learner.predict(blobs(["1"])[0])


def test_a_forgotten_class_does_not_come_back(tmp_path: Path) -> None:
    learner = taught(tmp_path / "a", *VISITS)
    learner.forget("bee")
    assert read_manifest(tmp_path / "a").earlier == ()
    with pytest.raises(LearnerError, match="no earlier generation"):
        learner.undo()
    learner.learn(*blobs(["fox"]), name="later")
    learner.undo()
    assert learner.classes == ("ant", "cat", "dog", "eel")


def test_an_unfinished_visit_is_not_lost_by_undoing_or_renaming(tmp_path: Path) -> None:
    learner = taught(tmp_path / "a", *VISITS)
    stopped_visit(learner)
    before = bits(tmp_path / "a")
    for change in (learner.undo, lambda **how: learner.rename("ant", "emmet", **how)):
        with pytest.raises(LearnerError, match=r"'stopped' is not finished.*discard=True"):
            change()
        assert learner.unfinished == "stopped"
    assert bits(tmp_path / "a") == before
    learner.rename("ant", "emmet", discard=True)
    assert learner.unfinished is None
    assert not (tmp_path / "a" / "visit").exists()


def test_a_renamed_class_has_its_name_everywhere_and_predictions_stay(tmp_path: Path) -> None:
    path = tmp_path / "a"
    learner = taught(path, *VISITS)
    inputs = blobs(["ant", "bee", "eel"], seed=9)[0]
    before = learner.predict(inputs, top=5)
    learner.rename("bee", "wasp")
    assert b'"bee"' not in (path / MANIFEST).read_bytes()
    after = learner.predict(inputs, top=5)
    assert after.probabilities == before.probabilities
    assert after.names == ["wasp" if name == "bee" else name for name in before.names]
    assert Learner.open(path).classes == ("ant", "wasp", "cat", "dog", "eel")
    assert "wasp" in learner.history[0].samples
    learner.undo()
    assert learner.classes == ("ant", "wasp", "cat", "dog")
    visit = learner.learn(*blobs(["wasp", "fox"], seed=4), name="later")
    assert visit.new_classes == ("fox",)
    for old, new, message in (
        ("yak", "ox", "unknown class 'yak'"),
        ("ant", "cat", r"already a class 'cat'.*merge=True \(--merge\)"),
        ("ant", "ant", "already called 'ant'"),
        ("ant", "a\nb", "printable characters"),
    ):
        with pytest.raises(LearnerError, match=message):
            learner.rename(old, new)
    with pytest.raises(LearnerError, match="'ox' is not a known class"):
        learner.rename("ant", "ox", merge=True)


@pytest.mark.parametrize("method", ["er_ema", "derpp"])
def test_probabilities_of_merged_classes_add_up_and_it_learns_on(
    tmp_path: Path, method: str
) -> None:
    path = tmp_path / "a"
    learner = taught(path, *VISITS, method=method, memory=80, epochs=8)
    inputs = blobs(["ant", "bee", "cat", "dog", "eel"], seed=9)[0]
    before = learner.predict(inputs, top=5)
    samples = sum(
        visit.samples.get(name, 0) for visit in learner.history for name in ("ant", "cat")
    )
    learner.rename("cat", "ant", merge=True)
    assert learner.classes == ("ant", "bee", "dog", "eel")
    after = learner.predict(inputs, top=4)
    for own, then in zip(after, before, strict=True):
        shares = dict(then.top)
        shares["ant"] += shares.pop("cat")
        assert dict(own.top) == pytest.approx(shares, abs=1e-6)
    assert sum(visit.samples.get("ant", 0) for visit in learner.history) == samples
    assert learner.history[2].held_out["ant"] > learner.history[0].held_out["ant"]
    module = learner.net()
    assert module(module_inputs(learner, inputs)).shape == (len(inputs), 4)
    visit = learner.learn(*blobs(["ant", "fox"], seed=4), name="later")
    assert visit.new_classes == ("fox",)
    assert set(visit.before) == {"ant", "bee", "dog", "eel"}
    labels = ["ant"] * 30
    assert learner.evaluate(blobs(["cat"], seed=11)[0], labels).accuracy > 60
    forgotten = learner.forget("ant")
    assert forgotten.samples > 5
    assert learner.classes == ("bee", "dog", "eel", "fox")
    for number, names in enumerate(VISITS):
        for sample, label in zip(*blobs(names, seed=number), strict=True):
            if label in ("ant", "cat"):
                assert not any(sample.tobytes() in p.read_bytes() for p in path.glob("s*-*"))


def module_inputs(learner: Learner, inputs: np.ndarray) -> object:
    import torch

    assert learner.preprocessing.mean is None
    return torch.from_numpy(inputs) * learner.preprocessing.scale


def test_classes_merged_into_the_only_one_and_undone(tmp_path: Path) -> None:
    learner = taught(tmp_path / "a", ["ant", "bee"], ["cat"])
    learner.rename("ant", "bee", merge=True)
    assert learner.classes == ("bee", "cat")
    learner.undo()
    assert list(learner.classes) == ["bee"]
    assert learner.predict(blobs(["ant"])[0]).names == ["bee"] * 30
    learner.learn(*blobs(["bee", "dog"], seed=6), name="later")
    assert list(learner.classes) == ["bee", "dog"]


CHANGES: dict[str, Change] = {
    "undo": lambda learner: learner.undo(),
    "rename": lambda learner: learner.rename("bee", "wasp"),
    "merge": lambda learner: learner.rename("bee", "ant", merge=True),
}


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("before") / "a"
    taught(path, *VISITS)
    return path


@pytest.mark.parametrize("name", CHANGES)
def test_a_crash_at_any_point_leaves_the_learner_before_or_after_the_change(
    tmp_path: Path, before: Path, name: str
) -> None:
    shutil.copytree(before, tmp_path / "after")
    CHANGES[name](Learner.open(tmp_path / "after"))
    old, new = bits(before), bits(tmp_path / "after")
    for at in range(200):
        path = tmp_path / "a"
        shutil.copytree(before, path)
        disk = FaultyDisk(at, late=bool(at % 2))
        with pytest.MonkeyPatch.context() as monkeypatch:
            disk.install(monkeypatch)
            with suppress(RemaskError, CrashError):
                CHANGES[name](Learner.open(path))
        assert bits(path) in (old, new)
        learner = Learner.open(path)
        assert learner.predict(blobs(["ant"])[0])
        if bits(path) == old:
            CHANGES[name](learner)
        assert bits(path) == new
        named = {note.name for note in read_manifest(path).files}
        there = {p.name for p in path.iterdir() if not p.name.startswith("learner.lock")}
        assert there == named | {MANIFEST}
        shutil.rmtree(path)
        if not disk.reached:
            return
    raise AssertionError("the change has no end of operations")


def rounds(path: Path) -> None:
    """Learn, rename, merge, undo and forget, each unless it is done already."""
    learner = Learner.open(path)
    learner.checkpoint_seconds = 0.01
    if "fox" not in learner.classes and "eel" in learner.classes:
        learner.learn(*blobs(["fox", "gnu"], seed=5), name="fourth")
    if "bee" in learner.classes:
        learner.rename("bee", "wasp")
    if "cat" in learner.classes:
        learner.rename("cat", "dog", merge=True)
    if "fox" in learner.classes:
        learner.undo()
    if "eel" in learner.classes:
        learner.forget("eel")


def killed(path: Path, seconds: float) -> bool:
    """Run the rounds in a child process that is killed after some time; whether it was."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            rounds(path)
            code = 0
        finally:
            os._exit(code)
    deadline = time.monotonic() + seconds
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGKILL)
            return os.waitstatus_to_exitcode(status) != 0
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        reader = Learner.open(path)
        assert set(reader.predict(blobs(["ant"], each=2)[0]).names) <= set(reader.classes)


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(4, marks=pytest.mark.processes),
        pytest.param(100, marks=pytest.mark.faults),
    ],
)
def test_changes_killed_at_random_moments_end_with_the_same_bits(
    tmp_path: Path, before: Path, kills: int
) -> None:
    shutil.copytree(before, tmp_path / "after")
    rounds(tmp_path / "after")
    expected = bits(tmp_path / "after")
    source, path, count = random.Random(kills), tmp_path / "a", 0
    while True:
        if not path.exists():
            shutil.copytree(before, path)
        if count < kills and killed(path, source.uniform(0.0, 0.6)):
            count += 1
            continue
        rounds(path)
        assert bits(path) == expected
        eels = [s for s, own in zip(*blobs(VISITS[2], seed=2), strict=True) if own == "eel"]
        for file in path.rglob("*"):
            assert not file.is_file() or not any(e.tobytes() in file.read_bytes() for e in eels)
        if count >= kills:
            return
        shutil.rmtree(path)
