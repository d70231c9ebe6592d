"""Nets and backbones of the user's own: weights are stored, code is not."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from remask.learner import Learner, LearnerError, Progress
from remask.learner.manifest import read_manifest
from tests.learner.samples import bits, blobs, create


class Small(nn.Module):
    """Convolutions, and a head of 7 classes that is replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten())
        self.classifier = nn.Linear(6 * 16, 7)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.body(inputs))
        return logits


def body() -> nn.Module:
    torch.manual_seed(5)
    own: nn.Module = Small().body
    return own


def net_function(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(input_shape)), num_classes))


def test_a_module_learns_from_its_own_weights_and_needs_its_code(tmp_path: Path) -> None:
    net = Small()
    kernels = net.state_dict()["body.0.weight"].clone()
    create(tmp_path / "a", net=net, lr=0.05, epochs=6)
    with pytest.raises(LearnerError, match=r"net of this learner is your own .* open it with net="):
        Learner.open(tmp_path / "a")
    learner = Learner.open(tmp_path / "a", net=Small())  # other weights, which do not count
    learner.learn(*blobs(["ant", "bee"]), name="0")
    learner.learn(*blobs(["cat"], seed=1), name="1")
    predicted = learner.predict(blobs(["ant", "bee", "cat"], seed=9)[0])
    trained = learner.net().state_dict()["net.body.0.weight"]
    assert torch.equal(net.state_dict()["body.0.weight"], kernels)  # the user's is not touched
    assert not torch.equal(trained, kernels)
    assert (trained - kernels).abs().max() < 0.5  # but it started there
    learner = Learner.open(tmp_path / "a", net=Small())
    assert learner.predict(blobs(["ant", "bee", "cat"], seed=9)[0]) == predicted
    other = nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
    with pytest.raises(LearnerError, match="not the one that the learner was created with"):
        Learner.open(tmp_path / "a", net=other)


@pytest.mark.parametrize("method", ["er", "auto", "ridge"])
def test_an_encoder_of_one_s_own_gets_a_head(tmp_path: Path, method: str) -> None:
    encoder = nn.Sequential(body(), nn.Flatten())
    before = [tensor.clone() for tensor in encoder.state_dict().values()]
    everyone = blobs(["ant", "bee", "cat"], seed=9)
    settings = {"net": "auto", "method": method, "lr": 0.05, "epochs": 15}
    learner = create(tmp_path / "a", encoder=encoder, **settings)
    learner.learn(*blobs(["ant", "bee"]), name="0")
    learner.learn(*blobs(["cat"], seed=1), name="1")
    assert learner.evaluate(*everyone).accuracy > 80
    predicted, scores = learner.predict(everyone[0]), learner.net()
    assert all(map(torch.equal, before, encoder.state_dict().values()))
    torch.testing.assert_close(
        scores(torch.from_numpy(everyone[0])).softmax(1).max(1).values,
        torch.tensor(predicted.probabilities),
    )
    manifest = read_manifest(tmp_path / "a")
    assert manifest.data is not None
    assert manifest.data.kept.shape == (96,)
    with pytest.raises(LearnerError, match=r"encoder of this learner is your own.*encoder="):
        Learner.open(tmp_path / "a")
    again = Learner.open(tmp_path / "a", encoder=encoder)
    assert again.predict(everyone[0]) == predicted
    again.learn(*blobs(["dog"], seed=2), name="2")
    with pytest.raises(LearnerError, match="does not have the weights that this learner"):
        Learner.open(tmp_path / "a", encoder=nn.Sequential(Small().body, nn.Flatten()))


def test_a_function_must_be_named_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_nets.py").write_text(
        "from torch import nn\n"
        "open(__file__ + '.ran', 'w').close()\n"
        "def flat(shape, classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(36, classes))\n"
    )
    ran = tmp_path / "own_nets.py.ran"
    learner = create(tmp_path / "a", net="own_nets:flat")
    learner.learn(*blobs(["ant", "bee"]), name="0")
    ran.unlink()
    with pytest.raises(LearnerError, match="own_nets:flat"):
        Learner.open(tmp_path / "a")
    assert not ran.exists()
    learner = Learner.open(tmp_path / "a", net="own_nets:flat")
    predicted = learner.predict(blobs(["ant"])[0])
    learner = Learner.open(tmp_path / "a", net=net_function)
    assert learner.predict(blobs(["ant"])[0]) == predicted


def test_what_cannot_be_a_net_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LearnerError, match=r"last layer of the net must be an nn\.Linear"):
        create(tmp_path / "a", net=nn.ReLU())
    learner = create(tmp_path / "b", net=nn.Sequential(nn.Flatten(), nn.Linear(35, 2)))
    with pytest.raises(LearnerError, match=r"cannot take inputs \[2, 1, 6, 6\]"):
        learner.learn(*blobs(["ant", "bee"]), name="0")


def test_means_and_deviations_can_be_given(tmp_path: Path) -> None:
    learner = create(tmp_path / "a", net=Small(), normalise=((0.5,), (0.25,)), epochs=1)
    learner.learn(*blobs(["ant", "bee"]), name="0")
    assert learner.preprocessing.mean == (0.5,)
    assert learner.preprocessing.std == (0.25,)
    learner = create(tmp_path / "b", normalise=((0.5,) * 3, (0.25,) * 3))
    with pytest.raises(LearnerError, match="3 means and 3 deviations, but the inputs have 1"):
        learner.learn(*blobs(["ant", "bee"]), name="0")


def test_features_that_were_computed_are_not_computed_again(tmp_path: Path) -> None:
    class Stop(Exception):  # noqa: N818 - not a failure
        pass

    def stop(progress: Progress) -> None:
        if progress.step > 512:
            raise Stop

    encoder = nn.Sequential(body(), nn.Flatten())
    data = blobs(["ant", "bee"], each=400)
    settings = {"net": "auto", "method": "ridge"}
    learner = create(tmp_path / "a", encoder=encoder, **settings)
    with pytest.raises(Stop):
        learner.learn(*data, name="0", on_progress=stop)
    assert len(list((tmp_path / "a" / "visit" / "parts").iterdir())) == 2
    assert learner.unfinished is None
    again = Learner.open(tmp_path / "a", encoder=encoder)
    seen: list[Progress] = []
    again.learn(*data, name="0", on_progress=seen.append)
    assert [each.step for each in seen[:3]] == [256, 512, 576]
    assert seen[0].resumed
    assert all(each.phase == "encoding" for each in seen)
    assert not (tmp_path / "a" / "visit").exists()
    whole = create(tmp_path / "b", encoder=encoder, **settings)
    whole.learn(*data, name="0")
    assert bits(tmp_path / "a") == bits(tmp_path / "b")
