"""A learner learns visit after visit, predicts, and is the same in another process."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import remask
from remask.engine import DataDescription, TrialStack
from remask.files import LockHeldError
from remask.learner import Learner, LearnerError, Progress
from remask.learner.data import choose_held_out, sample_key
from remask.learner.folder import LearnerFolder
from remask.learner.manifest import read_manifest
from remask.learner.training import trial_config
from remask.methods import find_method
from remask.nets.builders import mlp
from tests.learner.samples import bits, blobs, create, interrupted, taught

OTHER_METHODS = ("er", "derpp", "er_ace", "fdr", "lode")
FIRST = [f"a{number}" for number in range(12)]
SECOND = [f"b{number}" for number in range(9)]


def test_it_learns_new_classes_and_keeps_the_old(tmp_path: Path) -> None:
    learner = taught(tmp_path / "a", ["ant", "bee"], ["cat"], ["dog", "eel"], epochs=10)
    assert learner.classes == ("ant", "bee", "cat", "dog", "eel")
    found = learner.evaluate(*blobs(learner.classes, seed=99))
    assert found.accuracy > 90
    assert min(found.per_class.values()) > 60
    assert found.samples == 150
    assert learner.predict(blobs(["bee"], seed=98)[0]).names.count("bee") > 25


def test_visits_in_one_process_or_in_several_end_with_the_same_bits(tmp_path: Path) -> None:
    inputs, visits = blobs(["ant", "bee", "cat"], seed=99)[0], (["ant", "bee"], ["cat"])
    once = create(tmp_path / "once")
    create(tmp_path / "often")
    for number, names in enumerate(visits):
        for learner in (once, Learner.open(tmp_path / "often")):
            learner.learn(*blobs(names, seed=number), name=f"visit-{number}")
    assert bits(tmp_path / "once") == bits(tmp_path / "often")
    again = Learner.open(tmp_path / "once")
    assert again.predict(inputs, top=3) == once.predict(inputs, top=3)
    assert again.history == once.history
    assert again.classes == ("ant", "bee", "cat")


@pytest.mark.parametrize(
    "method",
    ["icarl", "lwf", *(pytest.param(name, marks=pytest.mark.slow) for name in OTHER_METHODS)],
)
def test_other_methods_learn_too(tmp_path: Path, method: str) -> None:
    taught(tmp_path / "a", ["ant", "bee"], ["cat"], method=method, mask=None, epochs=8)
    again = Learner.open(tmp_path / "a")
    visit = again.learn(*blobs(["dog"], seed=3), name="third")
    assert visit.accuracy["dog"] > 50
    assert again.evaluate(*blobs(["dog"], seed=9)).accuracy > 50


def test_a_visit_may_have_one_class_or_one_sample(tmp_path: Path) -> None:
    learner = create(tmp_path / "a")
    learner.learn(*blobs(["ant"]), name="one class")
    assert learner.predict(blobs(["ant"])[0][:1])[0].probability == 1
    visit = learner.learn(*blobs(["bee"], each=1), name="one sample")
    assert visit.samples == {"bee": 1}
    assert visit.held_out.keys() == {"ant"}
    assert learner.classes == ("ant", "bee")


def test_a_known_class_that_returns_keeps_its_output(tmp_path: Path) -> None:
    learner = taught(tmp_path / "a", ["ant", "bee"], ["cat"])
    visit = learner.learn(*blobs(["bee", "dog"], seed=5), name="again")
    assert visit.new_classes == ("dog",)
    assert learner.classes == ("ant", "bee", "cat", "dog")
    assert str(visit).startswith(
        "again: learnt 1 new class (dog) and 1 known class again from 54 samples; old classes "
    )


def test_the_result_of_a_visit_has_what_changed(tmp_path: Path) -> None:
    first, second = taught(tmp_path / "a", ["ant", "bee"], ["cat"]).history
    assert first.new_classes == ("ant", "bee")
    assert (first.before, first.lost) == ({}, None)
    assert first.samples == {"ant": 27, "bee": 27}
    assert first.held_out == {"ant": 3, "bee": 3}
    assert second.before.keys() == {"ant", "bee"}
    assert second.accuracy.keys() == {"ant", "bee", "cat"}
    assert second.number == 2
    assert second.choice.mask == "-1"
    drops = [second.before[name] - second.accuracy[name] for name in second.before]
    assert second.lost == pytest.approx(sum(drops) / 2)


def test_a_visit_is_not_learnt_twice(tmp_path: Path) -> None:
    learner = taught(tmp_path / "a", ["ant", "bee"])
    inputs, labels = blobs(["ant", "bee"], seed=0)
    again = learner.learn(inputs, labels, name="visit-0")
    assert again.repeated
    assert again.model_dump() == learner.history[0].model_dump()
    with pytest.raises(LearnerError, match=r"'visit-0' was learnt on 20.*another name"):
        learner.learn(inputs[1:], labels[1:], name="visit-0")


def test_visits_learn_what_one_stack_learns_that_never_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The kernel needs all samples in memory, and agrees with torch to a tolerance only.
    monkeypatch.setenv("REMASK_ENGINE", "torch")
    method = find_method("er_ema")
    learner = create(tmp_path / "a", method="er_ema", epochs=1)
    config = trial_config(learner.settings, method, 36, "mlp", 30)
    data = DataDescription((1, 6, 6), 10, name="learner")  # as wide as the learner's head
    stack = TrialStack([config], data, build_net=mlp)
    for number, name in enumerate(("ant", "bee", "cat")):
        inputs, labels = blobs([name], seed=number)
        learner.learn(inputs, labels, name=name)
        truth = torch.full((len(labels),), number)
        keys = [sample_key(sample, 0) for sample in inputs]
        learnt = np.setdiff1d(np.arange(len(labels)), choose_held_out(truth.tolist(), keys))
        stack.learn(stack.new_task(torch.from_numpy(inputs)[learnt], truth[learnt]))
    saved, own = LearnerFolder.open(tmp_path / "a").read_state(), stack.state()
    compared = [name for name in own if name.startswith(("net/", "method/")) or "labels" in name]
    assert len(compared) > 12
    assert all(torch.equal(saved[name], own[name]) for name in compared)


def test_predictions_are_those_of_the_net_and_add_up(tmp_path: Path) -> None:
    learner = taught(tmp_path / "a", ["ant", "bee"], ["cat"])
    inputs = blobs(["ant", "bee", "zebra"], seed=7)[0]
    predicted = learner.predict(inputs, top=10)
    for prediction in predicted:
        assert {name for name, _ in prediction.top} == {"ant", "bee", "cat"}
        assert sum(share for _, share in prediction.top) == pytest.approx(1, abs=1e-5)
        assert prediction.probability == prediction.top[0][1]
    assert learner.preprocessing.input_shape == (1, 6, 6)
    scores = learner.net()(torch.from_numpy(inputs).float() * learner.preprocessing.scale)
    assert scores.shape == (90, 3)
    assert [learner.classes[best] for best in scores.argmax(1).tolist()] == predicted.names
    shares = scores.softmax(1).max(1).values
    torch.testing.assert_close(shares, torch.tensor(predicted.probabilities))


def test_a_learner_may_be_open_many_times_and_each_may_learn(tmp_path: Path) -> None:
    first = taught(tmp_path / "a", ["ant", "bee"])
    second, third = (Learner.open(tmp_path / "a") for _ in range(2))
    assert second.predict(blobs(["cat"])[0])
    first.learn(*blobs(["cat"]), name="third")
    assert first.predict(blobs(["cat"])[0]).names.count("cat") > 25
    assert second.classes == ("ant", "bee")  # as it was when it was opened
    assert set(second.predict(blobs(["cat"])[0]).names) <= {"ant", "bee"}
    second.learn(*blobs(["dog"]), name="fourth")  # from the newest generation
    assert list(second.classes) == ["ant", "bee", "cat", "dog"]
    assert "cat" in second.predict(blobs(["cat", "dog"])[0]).names
    assert third.classes == ("ant", "bee")
    third.forget("cat")
    assert list(third.classes) == ["ant", "bee", "dog"]


def test_a_learner_whose_files_were_replaced_predicts_from_the_newest(tmp_path: Path) -> None:
    learner = taught(tmp_path / "a", ["ant", "bee"], keep_generations=0)
    late = Learner.open(tmp_path / "a")
    learner.learn(*blobs(["cat"]), name="third")
    assert "cat" in late.predict(blobs(["cat"])[0]).names
    assert late.classes == ("ant", "bee", "cat")
    shutil.rmtree(tmp_path / "a")
    create(tmp_path / "a", seed=1)
    with pytest.raises(LearnerError, match="it was replaced"):
        late.learn(*blobs(["dog"]), name="fourth")


def test_changes_wait_for_the_lock_and_name_its_holder(tmp_path: Path) -> None:
    learner = taught(tmp_path / "a", ["ant", "bee"])
    other = Learner.open(tmp_path / "a")
    other.lock_seconds = 0.1
    held: list[str] = []

    def meanwhile(progress: Progress) -> None:
        if held:
            return
        assert Learner.open(tmp_path / "a").predict(blobs(["ant"])[0])
        for change in (
            lambda: other.learn(*blobs(["dog"]), name="fourth"),
            lambda: other.forget("ant"),
            other.undo,
            lambda: other.rename("ant", "emmet"),
        ):
            with pytest.raises(LockHeldError, match="held by another call in this process") as why:
                change()
            held.append(str(why.value))

    learner.learn(*blobs(["cat"]), name="third", on_progress=meanwhile)
    assert len(held) == 4
    other.rename("ant", "emmet")
    assert other.classes == ("emmet", "bee", "cat")


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"method": "pnn"}, "needs the task of every input"),
    ({"method": "joint"}, "all tasks at once"),
    ({"method": "agem"}, "needs the number of tasks"),
    ({"method": "erema"}, "unknown method"),
    ({"net": "resnet81"}, "unknown net"),
    ({"memory": "many"}, "500 MB"),
    ({"memori": 5}, "unknown setting 'memori'; did you mean 'memory'"),
    ({"memory": 0}, "memory=0 keeps no samples to replay"),
    ({"method": "ridge", "net": "mlp"}, "trains no net: leave out net"),
    ({"encoder": "efficientnet-lite9"}, "unknown encoder"),
    ({"lr": -1.0}, "lr"),
    ({"memory": 10**5000}, "memory = a number of thousands of digits: give a number"),
    ({"normalise": ([0.0], [0.0])}, "normalise = .*deviations above 0"),
    ({"keep_generations": -1}, "keep_generations"),
    ({"net": 5}, "net = 5: must be a valid string"),
    ({"device": "abacus"}, "the device 'abacus' cannot be used: "),
]


def test_invalid_settings_are_errors_before_anything_is_created(tmp_path: Path) -> None:
    for change, message in WRONG:
        with pytest.raises(remask.errors.RemaskError, match=message):
            create(tmp_path / "a", **change)
        assert not (tmp_path / "a").exists()


def test_a_folder_that_is_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(LearnerError, match=r"not empty: it has thesis\.txt"):
        create(tmp_path)
    with pytest.raises(LearnerError, match="is not a learner's folder"):
        Learner.open(tmp_path)
    create(tmp_path / "a")
    with pytest.raises(LearnerError, match="already has a learner"):
        create(tmp_path / "a")
    with pytest.raises(LearnerError, match="not learnt any"):
        Learner.open(tmp_path / "a").predict(blobs(["ant"])[0])


@pytest.mark.slow
def test_adamw_learns_and_continues_in_another_process(tmp_path: Path) -> None:
    learner = taught(tmp_path / "a", ["ant", "bee"], optimizer="adamw", lr=None, epochs=12)
    assert learner.history[0].choice.lr == 0.001
    learner.learn(*blobs(["cat"], seed=1), name="second")
    assert learner.evaluate(*blobs(learner.classes, seed=9)).accuracy > 80
    learner.forget("bee")
    assert learner.evaluate(*blobs(["ant", "cat"], seed=9)).accuracy > 80


def test_a_visit_that_diverges_with_every_learning_rate_changes_nothing(tmp_path: Path) -> None:
    learner = create(tmp_path / "a", lr=1e30)
    before = bits(tmp_path / "a")
    with pytest.raises(LearnerError, match=r"not a number.* The learner is as it was"):
        learner.learn(*blobs(["ant", "bee"]), name="first")
    assert bits(tmp_path / "a") == before


@pytest.mark.parametrize(
    "method", ["derpp", *(pytest.param(n, marks=pytest.mark.slow) for n in ("er_ema", "lwf"))]
)
def test_a_head_grows_with_the_classes(tmp_path: Path, method: str) -> None:
    path = tmp_path / "a"
    learner = create(path, memory=150, method=method, mask=None)
    outputs = []
    for number, names in enumerate((FIRST[:2], FIRST, SECOND, ["c"])):
        if number == 2:
            shutil.copytree(path, tmp_path / "b")
            interrupted(learner, names, step=4, name=str(number))
        for own in (learner, *([Learner.open(tmp_path / "b")] if number == 2 else [])):
            own.learn(*blobs(names, each=30 if number == 2 else 8, seed=1), name=str(number))
        outputs.append(read_manifest(path).outputs)
        if number == 2:
            assert bits(path) == bits(tmp_path / "b")
    assert outputs == [10, 12, 21, 22]  # the settings were published for ten
    inputs = blobs(SECOND, each=2, seed=5)[0]
    assert Learner.open(path).predict(inputs, top=22) == learner.predict(inputs, top=22)
