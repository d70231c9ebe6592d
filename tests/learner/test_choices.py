"""Which mask a visit was learnt with, and how sure its predictions may be."""

from pathlib import Path

import pytest
import torch

from remask.engine.choosing import candidates_of
from remask.learner import Learner, Progress
from remask.learner import training as rules
from remask.learner.calibration import calibrate, calibration_error, class_weights
from remask.learner.folder import LearnerFolder
from tests.learner.samples import bits, blobs, create, taught


def test_masks_are_compared_on_held_out_samples_and_one_net_goes_on(tmp_path: Path) -> None:
    learner = create(tmp_path / "a", mask="auto", memory=1200, epochs=2)
    for number, names in enumerate((["ant", "bee"], ["cat", "dog"])):
        visit = learner.learn(*blobs(names, each=40, seed=number), name=str(number))
    assert "m = 0 fading 12 " in visit.choice.why
    assert "m = -1 " in visit.choice.why
    folder = LearnerFolder.open(tmp_path / "a")
    assert folder.manifest.state is not None
    tensors = folder.read_tensors(folder.manifest.state)
    assert all(len(tensor) == 1 for name, tensor in tensors.items() if name.startswith("net/"))
    assert len(tensors["memory/sources"]) == 1080


@pytest.mark.slow
def test_a_visit_with_candidates_goes_on_after_a_stop_with_the_same_bits(tmp_path: Path) -> None:
    class Stop(Exception):  # noqa: N818 - somebody's wish
        pass

    def look(progress: Progress) -> None:
        if progress.step == 5:
            raise Stop

    for name in "ab":
        learner = create(tmp_path / name, mask="auto", memory=1200, method="er_ema")
        learner.learn(*blobs(["ant", "bee"]), name="0")
        if name == "b":
            with pytest.raises(Stop):
                learner.learn(*blobs(["cat"]), name="1", on_progress=look)
        learner.learn(*blobs(["cat"]), name="1")
    assert bits(tmp_path / "a") == bits(tmp_path / "b")


def test_the_chosen_candidate_is_the_one_that_is_saved() -> None:
    state = {
        "net/w": torch.arange(6.0).view(3, 2),
        "memory/sources": torch.arange(12),
        "stream/counts": torch.arange(4),
    }
    one = rules.one_of(state, 2, 3)
    assert one["net/w"].tolist() == [[4.0, 5.0]]
    assert one["memory/sources"].tolist() == [8, 9, 10, 11]
    assert one["stream/counts"].tolist() == [0, 1, 2, 3]
    three = rules.copies(one, 3)
    assert {name: tensor.shape for name, tensor in three.items()} == {
        name: tensor.shape for name, tensor in state.items()
    }
    assert all(
        torch.equal(rules.one_of(three, number, 3)[name], tensor)
        for number in range(3)
        for name, tensor in one.items()
    )


def test_a_small_memory_takes_the_default(tmp_path: Path) -> None:
    learner = create(tmp_path / "a", mask="auto", memory=50)
    choice = learner.learn(*blobs(["ant", "bee"]), name="0").choice
    default, *_ = candidates_of(50)
    assert (float(choice.mask or "nan"), choice.fade) == (default.mask, default.fade)
    assert "learning rate 0.1: the default; there is nothing to compare" in str(choice)


def test_a_temperature_finds_scores_that_are_too_sure() -> None:
    random = torch.Generator().manual_seed(0)
    honest = 2 * torch.randn(4000, 5, generator=random, dtype=torch.float64)
    truth = torch.multinomial(honest.softmax(1), 1, generator=random).squeeze(1)
    found = calibrate(4 * honest, truth)
    assert found is not None
    assert found.temperature == pytest.approx(4, rel=0.1)
    assert found.ece_before > 10
    assert found.ece_after < 3


def _drawn(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores that mean what they say, and truths."""
    random = torch.Generator().manual_seed(seed)
    honest = 2 * torch.randn(count, 5, generator=random, dtype=torch.float64)
    return honest, torch.multinomial(honest.softmax(1), 1, generator=random).squeeze(1)


def test_few_samples_leave_honest_scores_alone_and_still_find_wrong_ones() -> None:
    scores, truth = _drawn(20_000, seed=999)
    changed, worse = 0, []
    for seed in range(40):
        few = _drawn(25, seed)
        found = calibrate(*few)
        assert found is not None
        changed += found.temperature != 1
        worse.append(calibration_error(scores / found.temperature, truth))
        too_sure = calibrate(4 * few[0], few[1])
        assert too_sure is not None
        assert too_sure.temperature > 1.8
    assert changed <= 20  # with no test of the fit, it would be all
    assert sum(worse) / 40 - calibration_error(scores, truth) < 2.5


def test_the_calibration_error_is_the_gap_between_confidence_and_accuracy() -> None:
    scores = torch.tensor([[0.8, 0.2], [0.8, 0.2], [0.8, 0.2], [0.2, 0.8]]).log()
    truth = torch.tensor([0, 1, 0, 0])
    assert calibration_error(scores, truth) == pytest.approx(30)  # 80 % sure, half of them right
    assert calibration_error(scores, torch.tensor([0, 0, 0, 1])) == pytest.approx(20)


def test_a_few_samples_that_are_all_right_do_not_make_it_sure_of_everything() -> None:
    found = calibrate(torch.tensor([[1.0, 0.0]] * 4), torch.zeros(4, dtype=torch.int64))
    assert found is not None
    assert 0.2 < found.temperature < 1
    assert calibrate(torch.zeros(3, 1), torch.zeros(3, dtype=torch.int64)) is None
    assert calibrate(torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64)) is None


def test_classes_weigh_the_same() -> None:
    weights = class_weights(torch.tensor([0, 0, 0, 2]))
    assert weights.tolist() == pytest.approx([1 / 6, 1 / 6, 1 / 6, 1 / 2])


def test_predictions_are_tables_too(tmp_path: Path) -> None:
    learner = taught(tmp_path / "a", ["ant", "bee"])
    said = learner.predict(blobs(["ant"], each=2)[0], top=2)
    lines = said.to_csv(tmp_path / "said.csv").splitlines()
    assert lines[0] == "source,name,probability,name_2,probability_2"
    assert len(lines) == 3
    assert (tmp_path / "said.csv").read_text() == said.to_csv()
    assert said.to_dicts()[0]["top"] == said[0].top
    assert '"name": "' in said.to_json()
    assert said[:1].each == (said[0],)
    assert isinstance(Learner.open(tmp_path / "a").history[0].choice.why, str)
