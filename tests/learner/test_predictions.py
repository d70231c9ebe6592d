"""Calibration, predictions that abstain or mark unknown samples, and evaluations."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from remask.learner import Evaluation, Learner, LearnerError, Prediction, Predictions
from remask.learner.choosing import calibrate, calibration_error
from remask.learner.evaluation import auroc, confusion_of
from remask.learner.predictions import Novelty, find_abstention, unknown_test
from remask.learner.results import Calibration
from remask.learner.scoring import Rated, class_weights
from remask.methods.statistics import ClassStatistics
from tests.learner.samples import blobs, taught


def honest(count: int, seed: int, classes: int = 5) -> tuple[Tensor, Tensor]:
    """Scores whose softmax is the probability of the truth, and truths."""
    random = torch.Generator().manual_seed(seed)
    scores = 2 * torch.randn(count, classes, generator=random, dtype=torch.float64)
    return scores, torch.multinomial(scores.softmax(1), 1, generator=random).squeeze(1)


def calibrated(scores: Tensor, truth: Tensor) -> Calibration:
    found = calibrate(Rated(scores, truth))
    assert found is not None
    return found


@pytest.mark.parametrize("wanted", [0.7, 0.9])
def test_the_wanted_accuracy_is_reached_at_the_stated_coverage(wanted: float) -> None:
    found = find_abstention(*honest(4000, seed=0), wanted)
    assert found.confidence is not None
    scores, truth = honest(20_000, seed=1)
    confident, named = scores.softmax(1).max(1)
    answered = confident >= found.confidence
    assert (named == truth)[answered].double().mean() == pytest.approx(wanted, abs=0.015)
    assert answered.double().mean() == pytest.approx(found.coverage, abs=0.02)
    assert f"{100 * wanted:g} % accuracy needs a confidence of" in str(found)


def test_few_held_out_samples_do_not_promise_what_new_ones_do_not_keep() -> None:
    scores, truth = honest(20_000, seed=1)
    confident, named = scores.softmax(1).max(1)
    reached = []
    for seed in range(60):
        found = find_abstention(*honest(60, seed=seed + 2), 0.8)
        answered = confident >= (1.0 if found.confidence is None else found.confidence)
        if answered.any():
            reached.append(float((named == truth)[answered].double().mean()))
    assert sum(reached) / len(reached) > 0.8  # without the correction it would be 0.795


def test_an_accuracy_that_is_not_reached_is_reported() -> None:
    random = torch.Generator().manual_seed(0)
    scores = torch.randn(500, 4, generator=random)
    found = find_abstention(scores, torch.randint(0, 4, (500,), generator=random), 0.9)
    assert found.confidence is None
    assert found.coverage == 0
    assert "90 % accuracy is not reached on 500 held-out samples" in str(found)
    few = find_abstention(torch.eye(4) * 9, torch.arange(4), 0.9)
    assert "cannot be measured on 4 held-out samples, it needs 9" in str(few)


def test_samples_of_equal_confidence_are_answered_together_or_not_at_all() -> None:
    scores = torch.zeros(40, 2)
    scores[:, 0] = 3.0
    truth = torch.zeros(40, dtype=torch.int64)
    truth[20:] = 1  # half of those that are equally sure are wrong
    assert find_abstention(scores, truth, 0.6).confidence is None
    assert find_abstention(scores, truth, 0.4).coverage == 1


def test_a_temperature_finds_scores_that_are_too_sure() -> None:
    scores, truth = honest(4000, seed=0)
    found = calibrated(4 * scores, truth)
    assert found.temperature == pytest.approx(4, rel=0.1)
    assert found.ece_before > 10
    assert found.ece_after < 3


def test_few_samples_leave_honest_scores_alone_and_still_find_wrong_ones() -> None:
    scores, truth = honest(20_000, seed=999)
    changed, worse = 0, []
    for seed in range(16):
        few = honest(25, seed)
        found = calibrated(*few)
        changed += found.temperature != 1
        worse.append(calibration_error(scores / found.temperature, truth))
        assert calibrated(4 * few[0], few[1]).temperature > 1.8
    assert changed <= 8  # without cross-validation, it would be all
    assert sum(worse) / 16 - calibration_error(scores, truth) < 2.5


def test_a_few_samples_that_are_all_right_do_not_make_it_sure_of_everything() -> None:
    right = calibrated(torch.tensor([[1.0, 0.0]] * 4), torch.zeros(4, dtype=torch.int64))
    assert 0.2 < right.temperature < 1
    assert calibrate(Rated(torch.zeros(3, 1), torch.zeros(3, dtype=torch.int64))) is None
    assert calibrate(Rated(torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64))) is None


def gaussians(classes: range, each: int, seed: int, features: int = 12) -> tuple[Tensor, Tensor]:
    """Features around a centre per class, with the same covariance, and their classes."""
    centres = torch.randn(40, features, generator=torch.Generator().manual_seed(0)).double()
    random = torch.Generator().manual_seed(seed)
    labels = torch.tensor([label for label in classes for _ in range(each)])
    noise = torch.randn(len(labels), features, generator=random).double()
    return 3 * centres[labels] + noise * torch.linspace(0.3, 2, features).double(), labels


def test_the_distance_is_the_relative_mahalanobis_distance() -> None:
    features, labels = gaussians(range(4), 30, seed=1)
    stats = ClassStatistics.empty(6, 12)
    stats.add(features, labels)
    means = torch.stack([features[labels == label].mean(0) for label in range(4)])
    apart, centred = features - means[labels], features - features.mean(0)
    precisions = []
    for rows in (apart, centred):
        covariance = rows.T @ rows / len(rows)
        shrunk = covariance + 10 * covariance.diagonal().mean() * torch.eye(12).double()
        precisions.append(torch.linalg.inv(shrunk))
    new, _ = gaussians(range(3, 7), 5, seed=2)
    expected = [
        min(float((row - mean) @ precisions[0] @ (row - mean)) for mean in means)
        - float((row - features.mean(0)) @ precisions[1] @ (row - features.mean(0)))
        for row in new
    ]
    assert Novelty(stats).distances(new).tolist() == pytest.approx(expected, abs=1e-9)


def test_false_alarms_are_as_rare_as_stated_and_unknown_classes_are_found() -> None:
    stats = ClassStatistics.empty(5, 12)
    stats.add(*gaussians(range(5), 60, seed=1))
    novelty = Novelty(stats)
    known = novelty.distances(gaussians(range(5), 400, seed=2)[0])
    strange = novelty.distances(gaussians(range(5, 15), 50, seed=3)[0])
    alarms, shuffle = [], torch.Generator().manual_seed(4)
    for _ in range(50):
        mixed = known[torch.randperm(2000, generator=shuffle)]
        held, new = mixed[:40], mixed[40:]
        found = unknown_test(held, 0.1)
        alarms.append(float((new > found.threshold).double().mean()))
    assert 0.06 < sum(alarms) / 50 <= 0.105
    assert (strange > unknown_test(known, 0.1).threshold).double().mean() > 0.8
    assert auroc(known, strange) > 0.95


def test_too_few_held_out_samples_for_a_rate_are_refused() -> None:
    assert unknown_test(torch.arange(19).double(), 0.05).threshold == 18
    with pytest.raises(LearnerError, match=r"rate of 0.05 needs at least 19 .* has 18"):
        unknown_test(torch.arange(18).double(), 0.05)


def test_the_area_under_the_curve_counts_pairs() -> None:
    known, unknown = torch.tensor([1.0, 2.0, 2.0, 4.0]), torch.tensor([2.0, 3.0, 0.0])
    wins = [(u > k) + 0.5 * (u == k) for k in known.tolist() for u in unknown.tolist()]
    assert auroc(known, unknown) == pytest.approx(sum(wins) / 12)


NAMES = ["ant", "bee", "cat", "dog"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Learner:
    """A net that was trained, with 12 held-out samples."""
    folder = tmp_path_factory.mktemp("trained") / "a"
    return taught(folder, NAMES[:2], NAMES[2:], memory=200, mask=None, epochs=10)


def features_of(names: list[str], each: int, seed: int) -> tuple[npt.NDArray[Any], list[str]]:
    numbers = {name: number for number, name in enumerate([*NAMES, "yak", "zebra"])}
    features, labels = gaussians(range(len(numbers)), each, seed)
    chosen = torch.isin(labels, torch.tensor([numbers[name] for name in names]))
    listed = list(numbers)
    return features[chosen].float().numpy(), [listed[label] for label in labels[chosen].tolist()]


@pytest.fixture(scope="module", params=[{"memory": 200}, {"memory": 0}, {"method": "er"}])
def on_features(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Learner:
    """Learners of features: with a memory, without one, and with a head that was trained."""
    learner = Learner.create(
        tmp_path_factory.mktemp("features") / "a", **{"method": "ridge"} | request.param
    )
    for names in (NAMES[:2], NAMES[2:]):
        learner.learn(*features_of(names, 60, seed=1), name="-".join(names))
    return learner


def test_a_trained_net_abstains_and_finds_unknown_samples(trained: Learner) -> None:
    known = blobs(NAMES, seed=9)[0]
    strange = blobs(["zebra", "yak", "x"], seed=9)[0]
    found = trained.predict(known, abstain=0.9, unknown=0.1)
    confidence = found.abstention.confidence if found.abstention else None
    assert confidence is not None
    for each in found:
        assert (each.name is not None) == (each.probability >= confidence and not each.unknown)
    assert sum(found.unknown) <= 0.3 * len(known)
    assert sum(trained.predict(strange, unknown=0.1).unknown) > 0.8 * len(strange)
    assert None not in trained.predict(strange).names
    answered = len(known) - found.names.count(None)
    assert found.notes[0].startswith(f"answered {answered} of {len(known)}; on 12 held-out samples")


def test_a_learner_of_features_finds_unknown_samples(on_features: Learner) -> None:
    known, strange = (features_of(names, 50, 5) for names in (NAMES, ["yak", "zebra"]))
    inputs, names = np.concatenate([known[0], strange[0]]), [*known[1], *strange[1]]
    found = on_features.evaluate(inputs, names, abstain=0.8, unknown=0.1)
    assert found.unknown_classes == {"yak": 50, "zebra": 50}
    assert found.samples == 200
    assert (found.auroc or 0) > 0.95
    assert (found.detected or 0) > 80
    assert (found.false_alarms or 100) < 25
    assert "not counted: 100 samples of 2 classes that the learner does not know" in str(found)


def test_abstain_and_unknown_must_be_between_0_and_1(trained: Learner) -> None:
    for wrong in (0, 1, 1.1, -0.5, True, "0.9"):
        with pytest.raises(LearnerError, match=r"abstain=.*number between 0 and 1"):
            trained.predict(blobs(["ant"])[0], abstain=wrong)  # type: ignore[arg-type]
        with pytest.raises(LearnerError, match=r"unknown=.*number between 0 and 1"):
            trained.evaluate(*blobs(["ant"]), unknown=wrong)  # type: ignore[arg-type]


def test_an_evaluation_counts_confusions_and_unknown_classes(trained: Learner) -> None:
    inputs, names = blobs([*NAMES, "zebra"], seed=3)
    found = trained.evaluate(inputs, names)
    named = trained.predict(inputs).names
    matrix = found.confusion_matrix()
    for true, row in zip(found.classes, matrix, strict=True):
        for predicted, count in zip(found.classes, row, strict=True):
            pairs = [pair for pair in zip(names, named, strict=True) if pair == (true, predicted)]
            assert count == len(pairs)
    assert found.unknown_classes == {"zebra": 30}
    assert found.counts == dict.fromkeys(NAMES, 30)
    assert found.accuracy == pytest.approx(100 * matrix.trace() / 120)
    nothing = trained.evaluate(*blobs(["zebra"]))
    assert math.isnan(nothing.accuracy)
    assert "no sample of a class that the learner knows" in str(nothing)


def test_held_out_samples_are_evaluated(trained: Learner) -> None:
    found = trained.evaluate_held_out()
    assert found.counts == dict.fromkeys(NAMES, 3)
    assert found.per_class == trained.history[-1].accuracy


def _evaluation(classes: int) -> Evaluation:
    names = [f"class-{number}" for number in range(classes)]
    truth = [label for label in range(classes) for _ in range(3)]
    named = [*truth[:-2], 0, 0]
    right = dict.fromkeys(names, 100.0) | {names[-1]: 100 / 3}
    return Evaluation(98.0, right, dict.fromkeys(names, 3), 1.5, confusion_of(truth, named, names))


def test_a_small_confusion_matrix_is_printed_and_of_a_large_one_the_worst() -> None:
    small, large = _evaluation(3), _evaluation(21)
    assert "   3 class-2 2 . 1" in str(small).splitlines()
    assert "confusion matrix" not in str(large)
    assert "  class-20 -> class-0: 2 of 3" in str(large).splitlines()
    assert (
        repr(large) == "<Evaluation: 98.0 % of 63 samples right, expected calibration error 1.5 %>"
    )


def test_classes_weigh_the_same_when_abstaining() -> None:
    scores = torch.tensor([[4.0, 0.0]] * 90 + [[3.0, 0.0]] * 90 + [[0.0, 5.0]] * 20)
    truth = torch.tensor([0] * 90 + [1] * 90 + [1] * 20)
    assert class_weights(truth)[:90].sum() == pytest.approx(0.5)
    found = find_abstention(scores, truth, 0.9)
    assert found.coverage == pytest.approx(0.5 + 0.5 * 20 / 110)


def test_predictions_are_tables(tmp_path: Path) -> None:
    learner = taught(tmp_path / "a", ["ant", "bee"])
    found = learner.predict(blobs(["ant"], each=2)[0], top=2)
    lines = found.to_csv(tmp_path / "found.csv").splitlines()
    assert lines[0] == "source,name,probability,name_2,probability_2"
    assert len(lines) == 3
    assert (tmp_path / "found.csv").read_text() == found.to_csv()
    assert found.to_dicts()[0]["top"] == found[0].top
    assert found[:1].each == (found[0],)


def test_predictions_have_short_texts() -> None:
    top = (("<b>", 0.75),)
    each = (Prediction("<b>", 0.75, top), Prediction(None, 0.75, top, "a.png", unknown=True))
    found = Predictions(each)
    assert repr(found) == "<Predictions of 2 samples: 1 <b>, 1 unknown>"
    assert str(found).splitlines() == ["0: <b> 75.0 %", "a.png: unknown (<b> 75.0 %)"]
    assert [each["unknown"] for each in json.loads(found.to_json())["predictions"]] == [False, True]
