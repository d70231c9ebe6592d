"""Integers, such as token ids, stay integers for a net of your own."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from remask.learner import Learner, LearnerError
from tests.learner.samples import bits

VOCABULARY, LENGTH = 40, 12


class BagOfWords(nn.Module):
    """The mean of the tokens' vectors, and a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, 16)
        self.head = nn.Linear(16, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        assert tokens.dtype == torch.int64
        logits: Tensor = self.head(self.table(tokens).mean(-2))
        return logits


def sentences(classes: list[int], each: int = 60, seed: int = 0) -> tuple[Any, Any]:
    """Token ids int64 [N, T] of which most are the class's own ten, and labels [N]."""
    random = np.random.default_rng([seed, *classes])
    labels = np.repeat(classes, each)
    own = 10 * labels[:, None] + random.integers(0, 10, (len(labels), LENGTH))
    noise = random.integers(0, VOCABULARY, own.shape)
    return np.where(random.random(own.shape) < 0.7, own, noise), labels


def create(folder: Path, **changes: Any) -> Learner:
    settings: dict[str, Any] = {"memory": 60, "lr": 0.5, "epochs": 20, **changes}
    torch.manual_seed(0)
    return Learner.create(folder, net=BagOfWords(), **settings)


def test_token_ids_are_learnt_in_two_visits_and_exported(tmp_path: Path) -> None:
    learner, dtype = create(tmp_path / "a"), np.int32
    for name, classes in (("first", [0, 1]), ("second", [2, 3])):
        inputs, labels = sentences(classes)
        learner.learn(inputs.astype(dtype), labels, name=name)
    assert learner.preprocessing.input_type == torch.int64
    assert learner.preprocessing.scale == 1.0
    assert learner.preprocessing.mean is None
    inputs, labels = sentences([0, 1, 2, 3], seed=1)
    assert learner.evaluate(inputs.astype(dtype), labels).accuracy > 85
    predicted = learner.predict(torch.from_numpy(inputs))
    scores = learner.net()(torch.from_numpy(inputs)).argmax(1)
    assert [each.name for each in predicted] == [learner.classes[column] for column in scores]
    again = Learner.open(tmp_path / "a", net=BagOfWords())
    assert again.predict(inputs) == predicted
    exported = learner.export(tmp_path / "net.pt2", "torch-export")
    given = torch.export.load(exported.path).module()(torch.from_numpy(inputs[:5]))
    assert predicted.probabilities[:5] == pytest.approx(given.max(1).values.tolist())


def test_integers_without_a_net_for_them_are_refused(tmp_path: Path) -> None:
    inputs, labels = sentences([0, 1])
    learner = Learner.create(tmp_path / "a")
    with pytest.raises(LearnerError, match="need a net or an encoder of your own"):
        learner.learn(inputs, labels, name="first")
    settings: list[dict[str, Any]] = [{"augment": True}, {"normalise": ([0.5], [0.5])}]
    for number, wrong in enumerate(settings):
        learner = create(tmp_path / str(number), **wrong)
        with pytest.raises(LearnerError, match="leave out augment and normalise"):
            learner.learn(inputs, labels, name="first")
    learner = create(tmp_path / "b", epochs=1)
    learner.learn(inputs, labels, name="first")
    before = bits(tmp_path / "b")
    for other in (inputs.astype(np.float32), inputs[:, :5], inputs.astype(np.uint8)):
        with pytest.raises(LearnerError, match="takes 12 integers, int64"):
            learner.learn(other, labels, name="second")
    assert bits(tmp_path / "b") == before
