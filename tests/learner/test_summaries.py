"""What a learner shows of itself: short texts, and tables for notebooks."""

from pathlib import Path

import pytest

from remask.learner import Learner, LearnerError, Visit
from tests.learner.samples import blobs, create, taught


def test_reprs_are_short_and_tables_are_escaped(tmp_path: Path) -> None:
    learner = taught(tmp_path / "a", ["ant", "<b>bee</b>"], ["cat"])
    assert repr(learner) == f"<Learner '{tmp_path / 'a'}': 3 classes in 2 visits, mlp, er>"
    visit = learner.history[1]
    assert repr(visit).startswith("<Visit 2 visit-1: learnt 1 new class (cat)")
    for shown in (learner, visit, learner.show(), learner.evaluate(*blobs(["ant"]))):
        page = shown._repr_html_()
        assert page.startswith("<pre>")
        assert "<b>" not in page
    assert "&lt;b&gt;bee" in learner._repr_html_()


def test_a_summary_counts_what_was_seen_and_is_kept(tmp_path: Path) -> None:
    learner = create(tmp_path / "a")
    assert "0 classes in 0 visits" in str(learner.show())
    learner.learn(*blobs(["ant", "bee"]), name="first")
    learner.learn(*blobs(["bee", "cat"], seed=1), name="second")
    found = learner.show()
    assert {each.name: each.seen for each in found.classes} == {"ant": 27, "bee": 54, "cat": 27}
    assert sum(each.kept for each in found.classes) == 40
    assert found.earlier == ("first", "second")
    assert found.data is not None
    assert (found.visits, found.data.inputs.shape, found.data.net) == (2, (1, 6, 6), "mlp")
    assert found.disk["samples"] == sum(p.stat().st_size for p in (tmp_path / "a").glob("sam*"))


def test_the_summary_of_a_visit_names_the_class_that_lost_most(tmp_path: Path) -> None:
    visit = taught(tmp_path / "a", ["ant", "bee"], ["cat"]).history[1]

    def changed(**changes: object) -> Visit:
        return visit.model_copy(update=changes)

    held_out = {"ant": 5, "bee": 5, "cat": 5}
    mixed = changed(
        before={"ant": 60.0, "bee": 40.0},
        accuracy={"ant": 40.0, "bee": 60.0, "cat": 50.0},
        held_out=held_out,
    )
    assert "old classes lost nothing on average" in str(mixed)
    assert "worst: ant, 60 -> 40" in str(mixed)
    same = changed(before={"ant": 60.0}, accuracy={"ant": 60.0, "cat": 50.0}, held_out=held_out)
    assert "old classes lost nothing on held-out samples" in str(same)
    assert str(changed(samples={"cat": 20, "dog": 1})).endswith("to hold any out: dog")


def test_the_history_keeps_no_name_or_fingerprint_of_forgotten_samples(tmp_path: Path) -> None:
    learner = create(tmp_path / "a")
    learner.learn(*blobs(["ant", "bee"]), name="both")
    learner.learn(*blobs(["cat"], seed=1), name="photos of the cat")
    learner.forget("cat")
    first, second = learner.history
    assert first.fingerprint is not None
    assert (second.name, second.number, second.fingerprint) == ("(forgotten)", 2, None)
    assert not second.samples
    assert b"photos of" not in (tmp_path / "a" / "learner.json").read_bytes()
    assert str(second) == "(forgotten): all its classes were forgotten"
    learner.forget("bee")
    assert learner.history[0].fingerprint is None
    with pytest.raises(LearnerError, match=r"'both' was learnt on .* forgotten since"):
        learner.learn(*blobs(["ant", "bee"]), name="both")
    learner.learn(*blobs(["cat"], seed=1), name="photos of the cat")
    assert Learner.open(tmp_path / "a").classes == ("ant", "cat")


def test_an_invalid_number_of_classes_is_an_error(tmp_path: Path) -> None:
    learner = taught(tmp_path / "a", ["ant", "bee"])
    for top in (0, -1, 1.5, True, "2"):
        with pytest.raises(LearnerError, match="whole number of classes"):
            learner.predict(blobs(["ant"])[0], top=top)  # type: ignore[arg-type]
