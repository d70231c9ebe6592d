"""Earlier generations are kept: visits are undone, and classes renamed, in all of them."""

from pathlib import Path

import pytest
import torch

from remask.learner import Learner, LearnerError
from remask.learner.manifest import MANIFEST, read_manifest
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


def now(path: Path) -> dict[str, object]:
    """A learner, without the generations that it keeps."""
    found = bits(path)
    del found["earlier"]
    return found


def test_undo_returns_visit_by_visit_to_the_same_bits(tmp_path: Path) -> None:
    path = tmp_path / "a"
    learner, states = create(path), [now(path)]
    for number, names in enumerate(VISITS):
        learner.learn(*blobs(names, seed=number), name=f"visit-{number}")
        states.append(now(path))
    inputs = blobs(["ant", "cat", "eel"], seed=9)[0]
    predicted = learner.predict(inputs)
    reader = Learner.open(path)
    undone = learner.undo()
    assert (undone.visit, undone.removed) == ("visit-2", ("eel",))
    assert str(undone) == "undid visit-2: 4 classes known; no longer known: eel"
    assert now(path) == states[2]
    assert "eel" not in learner.predict(inputs).names
    assert reader.classes == ("ant", "bee", "cat", "dog", "eel")
    learner.learn(*blobs(VISITS[2], seed=2), name="visit-2")
    assert now(path) == states[3]
    assert learner.predict(inputs) == predicted
    generation = read_manifest(path).generation
    for state in states[2::-1]:
        learner.undo()
        assert now(path) == state
    assert read_manifest(path).generation == generation + 3
    assert sorted(p.name for p in path.iterdir() if p.name != "learner.lock") == [MANIFEST]
    with pytest.raises(LearnerError, match="no earlier generation to return to"):
        learner.undo()


def test_the_set_number_of_generations_is_kept_and_only_their_files(tmp_path: Path) -> None:
    path = tmp_path / "a"
    learner = create(path, keep_generations=2, memory=30, epochs=1)
    for number in range(5):
        learner.learn(*blobs([f"{number}"], each=10), name=f"v{number}")
        manifest = read_manifest(path)
        assert len(manifest.earlier) == min(number + 1, 2)
        there = {p.name for p in path.iterdir()} - {MANIFEST, "learner.lock"}
        assert there == {note.name for note in manifest.files}
        assert sum(p.stat().st_size for p in path.glob("samples-*")) <= 3 * (30 * 36 + 128)
    learner.undo()
    learner.undo()
    assert learner.classes == ("0", "1", "2")
    with pytest.raises(LearnerError, match="keeps at most 2"):
        learner.undo()
    assert learner.predict(blobs(["1"])[0])


def test_a_forgotten_class_does_not_return(tmp_path: Path) -> None:
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
    interrupted(learner, ["fox"], name="stopped")
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


@pytest.mark.parametrize("method", ["er_ema", pytest.param("derpp", marks=pytest.mark.slow)])
def test_probabilities_of_merged_classes_add_up(tmp_path: Path, method: str) -> None:
    path = tmp_path / "a"
    learner = taught(path, *VISITS, method=method, memory=80, epochs=8)
    inputs = blobs(["ant", "bee", "cat", "dog", "eel"], seed=9)[0]
    before, history = learner.predict(inputs, top=5), learner.history
    learner.rename("cat", "ant", merge=True)
    assert learner.classes == ("ant", "bee", "dog", "eel")
    for own, then in zip(learner.predict(inputs, top=4), before, strict=True):
        shares = dict(then.top)
        shares["ant"] += shares.pop("cat")
        assert dict(own.top) == pytest.approx(shares, abs=1e-6)
    for one, other in zip(learner.history, history, strict=True):
        assert one.samples.get("ant", 0) == sum(other.samples.get(n, 0) for n in ("ant", "cat"))
    assert learner.history[2].held_out["ant"] > learner.history[0].held_out["ant"]
    seen = torch.from_numpy(inputs) * learner.preprocessing.scale
    assert learner.net()(seen).shape == (len(inputs), 4)
    visit = learner.learn(*blobs(["ant", "fox"], seed=4), name="later")
    assert visit.new_classes == ("fox",)
    assert set(visit.before) == {"ant", "bee", "dog", "eel"}
    assert learner.evaluate(blobs(["cat"], seed=11)[0], ["ant"] * 30).accuracy > 60
    assert learner.forget("ant").samples > 5
    assert learner.classes == ("bee", "dog", "eel", "fox")
    assert not files_with(path, [*samples_of("ant"), *samples_of("cat")])
