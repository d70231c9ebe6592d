"""The net, the encoder and the method of a learner: what its settings and its user name."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from remask.data.readers import InputFormat
from remask.encoders.encoder import CHUNK, Encoder
from remask.encoders.finding import find_encoder
from remask.errors import SettingsError
from remask.learner.manifest import DataNote
from remask.learner.settings import (
    AUTO,
    AUTO_METHOD,
    CLOSED_FORM,
    LINEAR,
    NONE,
    OWN_MODULE,
    LearnerError,
    LearnerSettings,
)
from remask.machine import check_device
from remask.methods import METHODS, Method, find_method
from remask.nets.builders import NetBuilder, net_builder
from remask.own_code import names_own_code

NetGiven = str | nn.Module | NetBuilder
EncoderGiven = str | nn.Module
_LIBRARIES = ("timm:", "torchvision:", "hf:")
_NO_HEAD = (
    "the last layer of the net must be an nn.Linear, which becomes the head that grows; or give "
    "the net without it as encoder=..., which stays as it is and gets a head"
)


class Model:
    """The code that a learner runs: modules and classes that the user gave, or named ones."""

    def __init__(
        self,
        settings: LearnerSettings,
        net: NetGiven | None,
        encoder: EncoderGiven | None,
        method: type[Method] | str | None,
        device: torch.device | str,
    ) -> None:
        """Find the method and the device. Raises LearnerError."""
        self.settings = settings
        self.method = method if isinstance(method, type) else None
        """The method that trains a net; None if only heads in closed form are used."""
        if self.method is None and settings.method not in CLOSED_FORM:
            self.method = find_method(AUTO_METHOD if settings.method == AUTO else settings.method)
        try:
            check_device(str(device))
        except SettingsError as error:
            raise LearnerError(str(error)) from None
        self.device = torch.empty(1, device=device).device
        self._given_net, self._given_encoder = net, encoder
        self._encoder: Encoder | None = None
        self.own_net: nn.Module | None = None
        """A copy of the module that the user gave as net."""
        if isinstance(net, nn.Module):
            if not any(isinstance(layer, nn.Linear) for layer in net.modules()):
                raise LearnerError(_NO_HEAD)
            self.own_net = copy.deepcopy(net)

    @property
    def trained_by(self) -> type[Method]:
        """The method, for a learner that trains a net."""
        assert self.method is not None
        return self.method

    def net_builder(self, name: str) -> NetBuilder:
        """Return the function (shape of an input, outputs) -> net. Raises UnknownNameError."""
        if self.own_net is not None:
            return _with_new_head(self.own_net)
        if callable(self._given_net):
            return self._given_net
        return linear if name == LINEAR else net_builder(name)

    def load_own_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Load stored weights into the module that the user gave, if any. Raises LearnerError."""
        try:
            if self.own_net is not None:
                self.own_net.load_state_dict(dict(weights))
        except RuntimeError as error:
            reason = str(error).splitlines()[-1].strip()
            raise LearnerError(
                f"the module given is not the one that the learner was created with: {reason}"
            ) from error

    def encoder(self, name: str, shape: tuple[int, ...] | None) -> Encoder:
        """Load an encoder; a module of the user's is for inputs of this shape."""
        if self._encoder is None or self._encoder.name != name:
            given = self._given_encoder if name == self.settings.encoder else None
            self._encoder = find_encoder(given or name, self.device, shape)
        return self._encoder

    def features(self, data: DataNote) -> "Features | None":
        """Return the module from inputs to features; None if there is no encoder.

        Raises LearnerError if its weights are not those that the learner has learnt with.
        """
        if data.encoder is None:
            return None
        note = data.encoder
        encoder = self.encoder(note.name, None if data.inputs.is_text else data.inputs.shape)
        if encoder.fingerprint != note.fingerprint or encoder.features != data.kept.shape[0]:
            raise LearnerError(
                f"the encoder {note.name!r} does not have the weights that this learner has learnt "
                f"with (SHA-256 {encoder.fingerprint[:12]}..., expected {note.fingerprint[:12]}"
                f"...). Install the version of the package that the learner was created with, or "
                f"give the same module."
            )
        return Features(encoder, data.inputs, note.image_size)


class Features(nn.Module):
    """From raw inputs to features of length 1.

    Images get the size and the channels that the encoder takes. The features of images are replaced
    by their square roots with sign, so that a few large ones do not dominate. All of this is in
    `forward`, and so part of an export.
    """

    def __init__(
        self, encoder: Encoder, inputs: InputFormat, image_size: tuple[int, int] | None
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self._bytes = inputs.dtype == "uint8"
        self._size = image_size if inputs.is_image else None
        self._resize = self._size is not None and self._size != inputs.shape[1:]
        self._shrinks = self._size is not None and min(inputs.shape[1:]) > min(self._size)

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute features [B, D] of raw inputs [B, *shape], or of token ids [B, L]."""
        if self._bytes and inputs.dtype != torch.uint8:
            inputs = inputs.to(torch.uint8)
        if self._size is not None:
            if inputs.shape[1] == 1:
                inputs = inputs.expand(-1, 3, -1, -1)
            if self._resize:
                pixels = F.interpolate(
                    inputs.to(torch.float32),
                    self._size,
                    mode="bilinear",
                    align_corners=False,
                    antialias=self._shrinks,
                )
                inputs = pixels.round().clamp(0, 255).to(torch.uint8)
        return self._scaled(self.encoder(inputs))

    @torch.no_grad()
    def encode(self, samples: Sequence[Any], done: Callable[[int], None] | None = None) -> Tensor:
        """Compute the features of samples as they are read, float32 [n, D] on the CPU.

        `done` is called after each chunk with the number of samples in it.
        """
        if self.encoder.kind == "text":
            return self._scaled(self.encoder.encode([str(text) for text in samples], done))
        parts = []
        for start in range(0, len(samples), CHUNK):
            chunk = torch.from_numpy(np.stack(samples[start : start + CHUNK]))
            form = torch.channels_last if chunk.ndim == 4 else torch.contiguous_format
            found = self(chunk.to(self.encoder.device, memory_format=form))
            parts.append(found.to("cpu", torch.float32))
            if done is not None:
                done(len(chunk))
        return torch.cat(parts)

    def _scaled(self, features: Tensor) -> Tensor:
        if self.encoder.kind == "image":
            features = features.sign() * features.abs().sqrt()
        return F.normalize(features, dim=1)


def check_given(
    settings: LearnerSettings,
    net: NetGiven | None,
    encoder: EncoderGiven | None,
    method: type[Method] | str | None,
) -> None:
    """Raise LearnerError if code that is not stored is missing, or differs from the settings.

    Nothing that the settings name is imported unless the caller names it as well.
    """
    for what, given, named, own in (
        ("net", net, settings.net, is_own_net(settings.net)),
        ("encoder", encoder, settings.encoder, is_own_encoder(settings.encoder)),
        ("method", method, settings.method, names_own_code(settings.method)),
    ):
        if given is None and own:
            raise LearnerError(
                f"the {what} of this learner is your own ({named}), and code is not stored: open "
                f"it with {what}=... (--{what}), as it was created"
            )
        if isinstance(given, str) and given != named:
            raise LearnerError(f"this learner has the {what} {named!r}, not {given!r}")
    if isinstance(encoder, nn.Module) and settings.encoder in (AUTO, NONE):
        raise LearnerError(
            f"this learner was created with encoder={settings.encoder!r}, not with a module"
        )


def is_own_net(name: str) -> bool:
    """Whether a net is a module of the user's, or `module:function`."""
    return name == OWN_MODULE or names_own_code(name)


def is_own_encoder(name: str) -> bool:
    """Whether an encoder is a module of the user's, or `module:function`."""
    return is_own_net(name) and not name.startswith(_LIBRARIES)


def name_of(method: type[Method] | str) -> str:
    """Return the name in the settings of a method that may be given as a class."""
    if isinstance(method, str) or METHODS.get(method.name) is method:
        return method if isinstance(method, str) else method.name
    return f"{method.__module__}:{method.__qualname__}"


def linear(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Build a linear classifier that starts at zero: all classes are equally likely."""
    layer = nn.Linear(int(torch.Size(input_shape).numel()), num_classes)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return nn.Sequential(nn.Flatten(), layer)


def _with_new_head(module: nn.Module) -> NetBuilder:
    """Return a function that builds copies of a module with another last linear layer."""

    def build(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        net = copy.deepcopy(module)
        name = _last_linear(net, input_shape)
        old = net.get_submodule(name)
        assert isinstance(old, nn.Linear)
        head = nn.Linear(old.in_features, num_classes, bias=old.bias is not None)
        if not name:
            return head
        net.set_submodule(name, head)
        return net

    return build


@torch.no_grad()
def _last_linear(net: nn.Module, input_shape: tuple[int, ...]) -> str:
    """Return the name of the linear layer whose output is the net's. Raises LearnerError."""
    called: list[tuple[str, Tensor]] = []
    hooks = [
        layer.register_forward_hook(lambda *call, name=name: called.append((name, call[2])))
        for name, layer in net.named_modules()
        if isinstance(layer, nn.Linear)
    ]
    embeds = any(isinstance(layer, nn.Embedding | nn.EmbeddingBag) for layer in net.modules())
    inputs = torch.zeros(2, *input_shape, dtype=torch.int64 if embeds else torch.float32)
    training = net.training
    try:
        output = net.eval()(inputs)
    except Exception as error:
        raise LearnerError(
            f"the module given cannot take inputs {[2, *input_shape]}: "
            f"{type(error).__name__}: {str(error)[:300]}"
        ) from error
    finally:
        net.train(training)
        for hook in hooks:
            hook.remove()
    if not called or called[-1][1] is not output:
        raise LearnerError(_NO_HEAD)
    return called[-1][0]
