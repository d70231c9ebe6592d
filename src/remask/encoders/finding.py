"""Encoders by name, by `module:function`, as modules, and from other libraries."""

import copy
import importlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from remask.encoders.catalogue import EncoderError, has_package, known_encoders, missing
from remask.encoders.efficientnet_lite import VARIANTS, load_efficientnet_lite
from remask.encoders.encoder import Encoder, PreparedEncoder, fingerprint
from remask.encoders.minilm import TextEncoder, load_minilm, pooled
from remask.errors import UnknownNameError, unknown
from remask.own_code import OwnCodeError, failure_of, import_own, names_own_code

_LONGEST = 512
"""Tokens per text where neither tokenizer nor model has a limit."""


def _library_encoder(name: str) -> Encoder:
    """Load `timm:NAME`, `torchvision:NAME` or `hf:NAME`."""
    library, _, model = name.partition(":")
    package, load = _LIBRARIES[library]
    if not has_package(package):
        raise missing(f"{library}:NAME")
    if not model:
        raise EncoderError(f"the encoder {name!r} lacks the name of a model: {library}:NAME")
    try:
        return load(name, model)
    except EncoderError:
        raise
    except Exception as error:  # of any kind: three libraries, and the network
        reason = str(error).strip()[:500] or "no reason given"
        raise EncoderError(
            f"{package} cannot load the encoder {name!r}: {type(error).__name__}: {reason}"
        ) from error


def _timm(name: str, model: str) -> Encoder:
    timm: Any = importlib.import_module("timm")
    # Without classes, a model of timm returns the pooled features.
    network = timm.create_model(model, pretrained=True, num_classes=0)
    config = timm.data.resolve_model_data_config(network)
    return PreparedEncoder(
        name, network, image_size=config["input_size"][-1], mean=config["mean"], std=config["std"]
    )


def _torchvision(name: str, model: str) -> Encoder:
    models: Any = importlib.import_module("torchvision.models")
    weights = models.get_model_weights(model).DEFAULT
    network = models.get_model(model, weights=weights)
    preset = weights.transforms()
    classes = len(weights.meta.get("categories", ()))
    linear = [key for key, part in network.named_modules() if isinstance(part, nn.Linear)]
    last = network.get_submodule(linear[-1]) if linear else None
    if last is None or last.out_features != classes or not hasattr(preset, "crop_size"):
        raise EncoderError(
            f"the encoder {name!r} is not a classifier of photographs that ends in nn.Linear"
        )
    network.set_submodule(linear[-1], nn.Identity())
    return PreparedEncoder(
        name, network, image_size=preset.crop_size[0], mean=preset.mean, std=preset.std
    )


def _hugging_face(name: str, model: str) -> Encoder:
    transformers: Any = importlib.import_module("transformers")
    local = Path(model).is_dir()
    settings = _image_settings(model, local=local)
    network, info = transformers.AutoModel.from_pretrained(
        model, local_files_only=local, dtype=torch.float32, output_loading_info=True
    )
    if settings is not None:
        network = getattr(network, "vision_model", network)  # of a pair such as CLIP
    lacking = [key for key in info["missing_keys"] if "pooler" not in key]
    if lacking:
        raise EncoderError(
            f"the weights of the encoder {name!r} lack {lacking[0]!r}, which would be random"
        )
    if info["missing_keys"]:
        network.pooler = None  # its weights are not published, so they would be random
    if settings is not None:
        return PreparedEncoder(name, _HuggingFacePhotographs(network), **settings)
    tokenizer = transformers.AutoTokenizer.from_pretrained(model, local_files_only=local)
    return _HuggingFaceTexts(name, network, tokenizer)


def _image_settings(model: str, *, local: bool) -> dict[str, Any] | None:
    """The size, mean and deviation of a model's photographs, or None if it takes texts."""
    path = Path(model) / "preprocessor_config.json"
    if not local:
        hub: Any = importlib.import_module("huggingface_hub")
        with suppress(importlib.import_module("huggingface_hub.errors").EntryNotFoundError):
            path = Path(hub.hf_hub_download(model, path.name))
    if not path.is_file():
        return None
    config = json.loads(path.read_text("utf-8"))
    size: Any = config.get("crop_size") if config.get("do_center_crop") else None
    size = size or config.get("size") or 224
    if isinstance(size, Mapping):
        size = size.get("shortest_edge") or size["height"]
    # The pixels that the network takes are pixels * rescale_factor, then normalised.
    scale = 255 * config.get("rescale_factor", 1 / 255) if config.get("do_rescale", True) else 255
    mean, std = (0.0,) * 3, (1.0,) * 3
    if config.get("do_normalize", True):
        mean, std = config.get("image_mean", (0.5,) * 3), config.get("image_std", (0.5,) * 3)
    scaled = {"mean": [value / scale for value in mean], "std": [value / scale for value in std]}
    return {"image_size": int(size), **scaled}


class _HuggingFacePhotographs(nn.Module):
    """The pooled output of a model, or its first token, or the mean of its maps."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixels: Tensor) -> Tensor:
        found = self.network(pixel_values=pixels)
        output: Tensor | None = getattr(found, "pooler_output", None)
        if output is not None:
            return output.flatten(1)
        states: Tensor = found.last_hidden_state
        return states[:, 0] if states.ndim == 3 else states.mean((2, 3))


class _HuggingFaceTexts(TextEncoder):
    """The mean over the tokens of a text, scaled to length 1."""

    def __init__(self, name: str, network: nn.Module, tokenizer: Any) -> None:
        super().__init__()
        self.name, self.network = name, network
        if tokenizer.pad_token_id is None:
            raise EncoderError(f"the tokenizer of the encoder {name!r} has no padding token")
        self.pad = tokenizer.pad_token_id
        config: Any = network.config
        longest = getattr(config, "max_position_embeddings", None) or _LONGEST
        longest = min(tokenizer.model_max_length, longest)
        self._tokenize = lambda texts: (
            list(tokenizer(texts, truncation=True, max_length=longest)["input_ids"])
            if texts
            else []
        )
        self.frozen()
        self.fingerprint = fingerprint(self)
        with torch.no_grad():
            self.features = self(self.tokenize(["a"])).shape[1]

    def forward(self, inputs: Tensor) -> Tensor:
        """Token ids int64 [B, L] -> features [B, F] of length 1."""
        mask = inputs != self.pad
        found = self.network(input_ids=inputs, attention_mask=mask.to(torch.int64))
        return pooled(found.last_hidden_state, mask)


_LIBRARIES: dict[str, tuple[str, Callable[[str, str], Encoder]]] = {
    "timm": ("timm", _timm),
    "torchvision": ("torchvision", _torchvision),
    "hf": ("transformers", _hugging_face),
}
"""What precedes the colon: the package, and the function that loads a model."""


OWN_MODULE = "own module"
"""The name of a module that was given as an object."""
_SIDES = (128, 224, 64, 32)
"""Sides of photographs to try on a module whose input shape is not given."""
_LOADERS: dict[str, Callable[[str], Encoder]] = {
    **dict.fromkeys(VARIANTS, load_efficientnet_lite),
    "minilm": load_minilm,
}


def find_encoder(
    given: str | nn.Module,
    device: torch.device | str = "cpu",
    input_shape: tuple[int, ...] | None = None,
) -> Encoder:
    """Load an encoder onto a device.

    Args:
        given: A name that `remask encoders` lists, `module:function` for a function of your own
            that returns a module, or a module. A module that is not an Encoder is copied; it
            receives pixels as floats from 0 to 1.
        device: Where the encoder computes.
        input_shape: The shape of one sample, for modules of your own. Without it, shapes of
            photographs are tried, then the inputs of the first linear layer.

    Raises:
        MissingPackageError: A package is not installed; the message has the command.
        EncoderError: The encoder cannot be loaded, or does not return features.
        OwnCodeError: `module:function` does not exist or failed.
        UnknownNameError: `given` is not the name of an encoder.

    """
    encoder = _named(given, input_shape) if isinstance(given, str) else _own(given, input_shape)
    return encoder.to(device)


def _named(name: str, input_shape: tuple[int, ...] | None) -> Encoder:
    if name in _LOADERS:
        return _LOADERS[name](name)
    if name.partition(":")[0] in _LIBRARIES:
        return _library_encoder(name)
    if not names_own_code(name):
        names = [info.name for info in known_encoders()]
        raise UnknownNameError(
            unknown("encoder", name, names) + "; or module:function for one of your own"
        )
    build = import_own("encoder", name)
    if not isinstance(build, nn.Module):
        try:
            build = build()
        except Exception as error:
            raise failure_of(f"{name}()", error) from error
    if not isinstance(build, nn.Module):
        raise OwnCodeError(f"{name}() must return an nn.Module, not {build!r:.100}")
    return _own(build, input_shape, name)


def _own(module: nn.Module, shape: tuple[int, ...] | None, name: str | None = None) -> Encoder:
    """Make an encoder of a user's module; `name` if it was found by name."""
    if isinstance(module, Encoder):
        for attribute in ("kind", "features", "fingerprint"):
            if not hasattr(module, attribute):
                raise EncoderError(
                    f"the encoder {name or type(module).__name__!r} does not set {attribute!r}"
                )
        if name is not None or not hasattr(module, "name"):
            module.name = name or OWN_MODULE
        return module.frozen()
    name, own = name or OWN_MODULE, copy.deepcopy(module)
    if shape is not None:
        if len(shape) == 3 and shape[0] == 3:
            return PreparedEncoder(name, own, image_size=shape[1], input_shape=shape)
        return PreparedEncoder(name, own, kind="array", input_shape=shape)
    failures = []
    for side in _SIDES:
        try:
            return PreparedEncoder(name, own, image_size=side)
        except EncoderError as error:
            failures.append(error)
    linear = next((part for part in own.modules() if isinstance(part, nn.Linear)), None)
    if linear is not None:
        with suppress(EncoderError):
            return PreparedEncoder(name, own, kind="array", input_shape=(linear.in_features,))
    raise EncoderError(
        f"{failures[0]}. If it takes other inputs, pass input_shape=..., the shape of one sample"
    ) from failures[0]
