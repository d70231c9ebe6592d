"""Exports predict as the net does, describe their use, and are written only if they do."""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from remask import Learner
from remask.encoders.minilm import TextEncoder, pooled
from remask.errors import MissingPackageError
from remask.files import DurabilityError
from remask.learner import Abstention, LearnerError, Preprocessing
from remask.learner.export import export_model
from tests.learner.samples import blobs, taught

SHAPE = (3, 6, 5)
CLASSES = ("ant", "bee", "café")
IMAGES = Preprocessing(
    input_shape=SHAPE,
    input_type=torch.uint8,
    scale=1 / 255,
    mean=(0.2, 0.3, 0.4),
    std=(0.5, 0.25, 0.125),
    resize="bilinear",
)
FEATURES = Preprocessing(
    input_shape=(4,), input_type=torch.float32, scale=1.0, mean=None, std=None, resize=None
)


ABSTAIN = [Abstention(wanted=0.9, confidence=0.6, coverage=0.75, best=0.95, held_out=40)]


@pytest.fixture
def net() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(48, 3)
    )


def _export(net: nn.Module, path: Path, to: Any, data: Preprocessing = IMAGES) -> Any:
    return export_model(net, path, to, classes=CLASSES, preprocessing=data, abstentions=ABSTAIN)


def _probabilities(net: nn.Module, images: Tensor) -> Tensor:
    """By hand, from bytes to probabilities."""
    mean, std = (torch.tensor(part).view(3, 1, 1) for part in ([0.2, 0.3, 0.4], [0.5, 0.25, 0.125]))
    with torch.no_grad():
        scores: Tensor = net.eval()((images.float() / 255 - mean) / std)
    return scores.softmax(-1)


def _images(count: int) -> Tensor:
    random = torch.Generator().manual_seed(count + 100)
    return torch.randint(0, 256, (count, *SHAPE), dtype=torch.uint8, generator=random)


@pytest.mark.thorough
def test_torch_export_takes_bytes_in_batches_of_any_size(net: nn.Module, tmp_path: Path) -> None:
    exported = _export(net, tmp_path / "net.pt2", "torch-export")
    notes = {"remask.json": ""}
    loaded = torch.export.load(exported.path, extra_files=notes)
    for count in (1, 3, 20):
        expected = _probabilities(net, _images(count))
        torch.testing.assert_close(loaded.module()(_images(count)), expected)
    assert json.loads(notes["remask.json"])["classes"] == list(CLASSES)
    assert str(Path(__file__).parent).encode() not in exported.path.read_bytes()


@pytest.mark.thorough
def test_the_nearest_means_of_icarl_are_exported_too(tmp_path: Path) -> None:
    learner = taught(tmp_path / "a", ["ant", "bee"], ["cat"], method="icarl", mask=None)
    exported = learner.export(tmp_path / "net.pt2", "torch-export")
    inputs = blobs(["ant", "cat"], each=15, seed=5)[0]
    loaded = torch.export.load(exported.path).module()
    for some in (inputs, inputs[:1]):
        given = loaded(torch.from_numpy(some)).max(1).values
        assert given.tolist() == pytest.approx(learner.predict(some).probabilities, abs=1e-5)


@pytest.mark.integrations
@pytest.mark.parametrize("name", ["small", "mlp", "resnet18"])
def test_onnx_takes_batches_of_any_size_from_bytes_to_probabilities(
    net: nn.Module, name: str, tmp_path: Path
) -> None:
    import onnxruntime

    from remask.nets.builders import net_builder

    if name != "small":
        net = net_builder(name)(SHAPE, len(CLASSES))
    exported = _export(net, tmp_path / "net.onnx", "onnx")
    session = onnxruntime.InferenceSession(exported.path)
    for count in (1, 3, 20):
        (given,) = session.run(None, {"inputs": _images(count).numpy()})
        np.testing.assert_allclose(given, _probabilities(net, _images(count)), atol=1e-5)
    written = session.get_modelmeta().custom_metadata_map
    assert json.loads(written["classes"]) == list(CLASSES)
    assert json.loads(written["remask.json"])["image"]["mode"] == "RGB"
    assert session.get_inputs()[0].shape == ["batch", *SHAPE]
    assert session.get_outputs()[0].shape == ["batch", len(CLASSES)]
    assert b".py" not in exported.path.read_bytes()


def test_safetensors_hold_the_weights_and_the_json_the_rest(net: nn.Module, tmp_path: Path) -> None:
    exported = _export(net, tmp_path / "net.safetensors", "safetensors")
    tensors = safetensors.torch.load_file(exported.path)
    assert set(tensors) == set(net.state_dict())
    assert all(torch.equal(tensor, net.state_dict()[name]) for name, tensor in tensors.items())
    note = json.loads(exported.description.read_text("utf-8"))
    assert exported.description == tmp_path / "net.safetensors.json"
    assert note["classes"] == list(CLASSES)
    steps = {"scale": 1 / 255, "mean": [0.2, 0.3, 0.4], "std": [0.5, 0.25, 0.125]}
    formula = {"inside": False, "formula": "(raw * scale - mean) / std"}
    assert note["preprocessing"] == {**formula, **steps}
    size = {"mode": "RGB", "height": 6, "width": 5, "resize": "bilinear"}
    assert size.items() <= note["image"].items()
    assert note["abstain"] == [{"accuracy": 0.9, "confidence": 0.6, "coverage": 0.75}]
    assert note["file"]["sha256"] == hashlib.sha256(exported.path.read_bytes()).hexdigest()
    with safetensors.safe_open(exported.path, "pt") as opened:
        assert json.loads(opened.metadata()["remask.json"])["classes"] == list(CLASSES)


class _Random(nn.Linear):
    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs) + torch.randn(len(inputs), 3)


class _Branching(nn.Linear):
    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs if float(inputs.sum()) > 0 else -inputs)


def test_a_net_that_predicts_something_else_when_read_back_is_not_written(tmp_path: Path) -> None:
    there = tmp_path / "net.safetensors"
    there.write_bytes(b"an earlier export")
    with pytest.raises(LearnerError, match="predicts something else"):
        _export(_Random(4, 3), there, "safetensors", FEATURES)
    assert there.read_bytes() == b"an earlier export"
    assert list(tmp_path.iterdir()) == [there]


@pytest.mark.thorough
def test_a_net_that_cannot_be_traced_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(LearnerError, match=r"cannot be exported to torch-export.*safetensors"):
        _export(_Branching(4, 3), tmp_path / "net.pt2", "torch-export", FEATURES)
    assert not list(tmp_path.iterdir())


def test_without_onnx_the_extra_is_named(
    net: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingPackageError, match=r"pip install onnx onnxruntime onnxscript"):
        _export(net, tmp_path / "net.onnx", "onnx")
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_exported_is_refused(net: nn.Module, tmp_path: Path) -> None:
    with pytest.raises(LearnerError, match="give one of onnx, torch-export, safetensors"):
        _export(net, tmp_path / "net", "tflite")
    with pytest.raises(DurabilityError, match="no such folder"):
        _export(net, tmp_path / "nowhere" / "net.pt2", "safetensors")
    learner = Learner.create(tmp_path / "learner")
    with pytest.raises(LearnerError, match="has not learnt anything yet"):
        learner.export(tmp_path / "net.safetensors", to="safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["learner"]


def _photographs(names: list[str], seed: int) -> tuple[np.ndarray[Any, Any], list[str]]:
    return blobs(names, each=12, seed=seed, shape=(3, 40, 48))


@pytest.fixture
def encoder() -> nn.Module:
    torch.manual_seed(4)
    layers = (nn.Conv2d(3, 8, 5, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten())
    return nn.Sequential(*layers)


@pytest.mark.parametrize(
    ("method", "to"),
    [
        ("ridge", "safetensors"),
        ("er", "safetensors"),
        *(
            pytest.param(method, "torch-export", marks=marks)
            for method, marks in (
                ("er", pytest.mark.thorough),
                ("slda", pytest.mark.thorough),
                ("ncm", pytest.mark.slow),
                ("ridge", pytest.mark.slow),
            )
        ),
    ],
)
def test_the_encoder_and_every_head_are_inside_the_file(
    encoder: nn.Module, method: str, to: Any, tmp_path: Path
) -> None:
    learner = Learner.create(tmp_path / "a", encoder=encoder, method=method, mask=None)
    for number, names in enumerate((["ant", "bee"], ["cat"])):
        learner.learn(*_photographs(names, number), name=str(number), force=True)
    inputs = _photographs(["ant", "bee", "cat"], 7)[0]
    expected = learner.predict(inputs)
    exported = learner.export(tmp_path / "net", to)
    note = json.loads(exported.description.read_text("utf-8"))
    assert note["input"] == {"name": "inputs", "type": "uint8", "shape": ["batch", 3, 40, 48]}
    run = torch.export.load(exported.path).module() if to == "torch-export" else learner.net()
    if to == "safetensors":
        for tensor in run.state_dict().values():
            tensor.zero_()
        run.load_state_dict(safetensors.torch.load_file(exported.path))
    found = run(torch.from_numpy(inputs))
    shares = (found if to == "torch-export" else found.softmax(-1)).max(1)
    assert [learner.classes[column] for column in shares.indices.tolist()] == expected.names
    assert shares.values.tolist() == pytest.approx(expected.probabilities, abs=1e-5)


class _Letters(TextEncoder):
    features, fingerprint = 8, "0" * 64

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self._tokenize = lambda texts: [[1 + ord(sign) % 31 for sign in text] for text in texts]
        self.letters = nn.Embedding(32, 8)

    def forward(self, inputs: Tensor) -> Tensor:
        return pooled(self.letters(inputs), inputs != self.pad)


def test_a_learner_of_texts_predicts_and_is_not_exported(tmp_path: Path) -> None:
    learner = Learner.create(tmp_path / "a", encoder=_Letters(), method="ridge")
    texts = [letter * length for letter in "xy" for length in range(2, 12)]
    learner.learn(texts, ["x"] * 10 + ["y"] * 10, name="0")
    assert learner.predict(["xxx", "yyyyy"]).names == ["x", "y"]
    with pytest.raises(LearnerError, match=r"a learner of texts .* cannot be exported"):
        learner.export(tmp_path / "net.onnx", "onnx")
    assert not list(tmp_path.glob("net*"))
