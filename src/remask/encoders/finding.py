"""Encoders by name, by `module:function`, or as modules."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from remask.encoders.catalogue import EncoderError, known_encoders
from remask.encoders.efficientnet_lite import VARIANTS, load_efficientnet_lite
from remask.encoders.encoder import Encoder, PreparedEncoder
from remask.encoders.libraries import LIBRARIES, library_encoder
from remask.encoders.minilm import load_minilm
from remask.errors import UnknownNameError, unknown
from remask.own_code import OwnCodeError, failure_of, import_own, names_own_code

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
    if name.partition(":")[0] in LIBRARIES:
        return library_encoder(name)
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
    name = name or OWN_MODULE
    own = copy.deepcopy(module)
    linear = next((part for part in own.modules() if isinstance(part, nn.Linear)), None)
    attempts: list[dict[str, Any]] = [{"image_size": side} for side in _SIDES]
    if linear is not None:
        attempts.append({"kind": "array", "input_shape": (linear.in_features,)})
    if shape is not None:
        is_image = len(shape) == 3 and shape[0] == 3
        kind = {"image_size": shape[1]} if is_image else {"kind": "array"}
        attempts = [{**kind, "input_shape": shape}]
    failures = []
    for options in attempts:
        try:
            return PreparedEncoder(name, own, **options)
        except EncoderError as error:
            failures.append(error)
    advice = ". If it takes other inputs, pass input_shape=..., the shape of one sample"
    raise EncoderError(f"{failures[0]}{'' if shape else advice}") from failures[0]
