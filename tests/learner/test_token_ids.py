"""Integers, such as token ids, stay integers for a net of one's own."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from remask.learner import Learner, LearnerError
from remask.streams import DataDescription
from remask.streams.description import StreamError
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


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_token_ids_are_learnt_in_two_visits(tmp_path: Path, dtype: Any) -> None:
    learner = create(tmp_path / "a")
    for name, classes in (("first", [0, 1]), ("second", [2, 3])):
        inputs, labels = sentences(classes)
        learner.learn(inputs.astype(dtype), labels, name=name)
    assert learner.preprocessing.input_type == torch.int64
    assert learner.preprocessing.scale == 1.0
    assert learner.preprocessing.mean is None
    inputs, labels = sentences([0, 1, 2, 3], seed=1)
    assert learner.evaluate(inputs.astype(dtype), labels).accuracy > 85
    said = learner.predict(torch.from_numpy(inputs))
    scores = learner.net()(torch.from_numpy(inputs)).argmax(1)
    assert [each.name for each in said] == [learner.classes[column] for column in scores]
    again = Learner.open(tmp_path / "a", net=BagOfWords())
    assert again.predict(inputs) == said


def test_token_ids_are_exported(tmp_path: Path) -> None:
    inputs, labels = sentences([0, 1])
    learner = create(tmp_path / "a", epochs=1)
    learner.learn(inputs, labels, name="first")
    exported = learner.export(tmp_path / "net.pt2", "torch-export")
    program = torch.export.load(exported.path).module()
    given = program(torch.from_numpy(inputs[:5]))
    said = learner.predict(inputs[:5])
    assert [each.probability for each in said] == pytest.approx(given.max(1).values.tolist())


def test_an_encoder_of_one_s_own_takes_token_ids(tmp_path: Path) -> None:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Embedding(VOCABULARY, 16), nn.Flatten())
    learner = Learner.create(tmp_path / "a", encoder=encoder, epochs=10)
    inputs, labels = sentences([0, 1])
    learner.learn(inputs, labels, name="first")
    assert learner.evaluate(*sentences([0, 1], seed=1)).accuracy > 80


def test_integers_are_refused_where_they_make_no_sense(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (
            np.zeros((4, 6, 6), np.uint16),
            r"got uint16\. Pixels of 16 bits become bytes",
        ),
        (np.zeros((4, 6), np.bool_), "got bool"),
        (np.zeros((4, 6, 6), np.int64), "got int64"),
        (np.zeros((4, 6), np.complex64), "got complex64"),
    ],
)
def test_arrays_of_other_types_are_refused(tmp_path: Path, array: Any, message: str) -> None:
    learner = Learner.create(tmp_path / "a")
    with pytest.raises(LearnerError, match=message):
        learner.learn(array, list("aabb"), name="first")


@pytest.mark.parametrize(
    "wrong", [{"scale": 0.5}, {"mean": (0.0,), "std": (1.0,)}, {"crop_padding": 1}, {"flip": True}]
)
def test_integers_are_neither_scaled_nor_augmented(wrong: dict[str, Any]) -> None:
    with pytest.raises(StreamError, match="int64 inputs are passed to the network as they are"):
        DataDescription((3, 8, 8), 2, input_type=torch.int64, **{"scale": 1.0, **wrong})
    DataDescription((3, 8, 8), 2, input_type=torch.int64, scale=1.0)
