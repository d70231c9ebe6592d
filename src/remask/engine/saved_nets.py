"""Saved nets: NAME.safetensors with the weights, and NAME.json that says how to rebuild the net.

The JSON has the digest of the weights, so that no net is ever built from parts of two. Nothing
that is read can run code: a net or method of the user's own is imported only if the caller says so.
"""

import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import safetensors.torch
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor, nn

from remask.config import TrialConfig
from remask.engine.checkpoints import check_fit
from remask.errors import RemaskError, UnknownNameError
from remask.files import AnyPath, make_folder, read_limited
from remask.methods import Method, MethodError, find_method
from remask.nets.builders import NetBuilder, net_builder
from remask.nets.stacked import StackedNet
from remask.outputs import write_output
from remask.own_code import names_own_code

if TYPE_CHECKING:
    from remask.engine.trials import TrialStack

_LARGEST_NOTE = 16 << 20
NET, METHOD = "net/", "method/"


def definer(method: type[Method], name: str) -> type[Method]:
    """The class that defines an attribute of a method."""
    return next(kind for kind in method.__mro__ if name in vars(kind))


def check_predictor(method: type[Method]) -> None:
    """Raise MethodError for a method that overrides `scores` but not `predictor`."""
    if not issubclass(definer(method, "predictor"), definer(method, "scores")):
        raise MethodError(
            f"{method.title} overrides `scores`, so its net alone would predict something else. "
            f"Define `predictor` as well to get its nets out."
        )


def trial_tensors(net: StackedNet, method: Method, trial: int) -> dict[str, Tensor]:
    """Copies of all tensors that one trial predicts with, by name."""
    own = {
        name: tensor
        for name, tensor in method.state().items()
        if name.partition("/")[0] in method.predicts_with
    }
    parts = {NET: net.state(), METHOD: own}
    return {
        f"{part}{name}": tensor[trial].detach().clone(memory_format=torch.contiguous_format)
        for part, named in parts.items()
        for name, tensor in named.items()
    }


def assemble(
    method: type[Method] | None, net: nn.Module, tensors: Mapping[str, Tensor]
) -> nn.Module:
    """Load what `trial_tensors` returned into a net, and return the module that predicts.

    The net may be on the meta device: nothing is allocated before all shapes are known to fit.
    Without a method the net itself predicts. Raises ValueError if they do not fit.
    """
    own = {n.removeprefix(METHOD): t for n, t in tensors.items() if n.startswith(METHOD)}
    saved = {name: t for name, t in tensors.items() if not name.startswith(METHOD)}
    check_fit(tensors if method is None else saved, _places(net), "the net")
    device = next(iter(tensors.values())).device
    if any(place.is_meta for place in _places(net).values()):
        net = net.to_empty(device=device)
    net = net.to(device).eval()
    with torch.no_grad():
        for name, place in _places(net).items():
            place.copy_(tensors[name])
    return net if method is None else method.predictor(net, own).eval()


def _places(net: nn.Module) -> dict[str, Tensor]:
    return {f"{NET}{n}": place for n, place in (*net.named_parameters(), *net.named_buffers())}


class SavedNetError(RemaskError):
    """A saved net cannot be read."""


class Preprocessing(BaseModel):
    """The preprocessing of inputs: `(inputs * scale - mean) / std`, per channel."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    scale: float
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None


class SavedNet(BaseModel):
    """The content of the JSON file."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    format: Literal[1] = 1
    net: str = Field(description="the net's name; module:function is the user's own")
    method: str | None = Field(description="the method that predicts with more than the net")
    input_shape: tuple[int, ...] = Field(description="of one input")
    num_classes: int = Field(ge=1)
    num_tasks: int = Field(ge=1, le=10_000)
    class_names: tuple[str, ...]
    preprocessing: Preprocessing = Field(description="from raw inputs to what the net sees")
    config: TrialConfig = Field(description="of the trial")
    sha256: str = Field(description="of the file with the weights")


def save_net(stack: "TrialStack", trial: int, path: AnyPath) -> None:
    """Save one trial's net as PATH.safetensors and PATH.json, each whole or not at all."""
    weights = safetensors.torch.save(
        {name: tensor.cpu() for name, tensor in stack.net_tensors(trial).items()}
    )
    config, data, method = stack.configs[trial], stack.data, stack.method
    plain = all(definer(method, name) is Method for name in ("predictor", "adapt_net"))
    note = SavedNet(
        net=config.net,
        method=None if plain else config.method,
        input_shape=data.input_shape,
        num_classes=data.num_classes,
        num_tasks=data.num_tasks or max(1, stack.position.task),
        class_names=data.class_names,
        preprocessing=Preprocessing(scale=data.scale, mean=data.mean, std=data.std),
        config=config,
        sha256=hashlib.sha256(weights).hexdigest(),
    )
    weights_path, note_path = _files(Path(path))
    make_folder(note_path.parent)
    write_output(weights_path, weights)
    written = json.dumps(note.model_dump(mode="json"), indent=1, allow_nan=False)
    write_output(note_path, written.encode() + b"\n")


def read_saved_net(path: AnyPath) -> SavedNet:
    """Read the description of a saved net, without its weights. Raises SavedNetError."""
    _, note_path = _files(Path(path))
    try:
        return SavedNet.model_validate_json(_read(note_path, _LARGEST_NOTE))
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"]))[:100] or "the file"
        raise SavedNetError(
            f"{note_path} is not the description of a saved net: {where}: {problem['msg']:.200}"
        ) from None


def load_net(
    path: AnyPath, *, build: NetBuilder | None = None, own_code: bool = False
) -> nn.Module:
    """Read back a net that a run with `save_nets` wrote; it is on the CPU, and only predicts.

    It maps inputs [B, *shape], as the net saw them in training (see `Preprocessing` in the JSON),
    to scores [B, K], the highest wins. A net that must be told the task takes it as well,
    `net(inputs, task)`. For a net of your own, give its builder, or `own_code=True` to import what
    the file names. Raises SavedNetError.
    """
    note, (file, _) = read_saved_net(path), _files(Path(path))
    data = _read(file, sys.maxsize)
    if hashlib.sha256(data).hexdigest() != note.sha256:
        raise SavedNetError(
            f"{file} is damaged, or is not what {file.with_suffix('.json').name} was written for. "
            f"Bring back a copy, or run the trial again and save its net."
        )
    named = [("net", note.net)] * (build is None) + [("method", note.method or "")]
    for kind, name in named:
        if names_own_code(name) and not own_code:
            raise SavedNetError(
                f"{file} uses a custom {kind}, {name!r:.200}. Pass own_code=True to import it, "
                f"which runs its code, or for a net build=... with the function that builds it."
            )
    trusted = build is not None or names_own_code(note.net)
    try:
        builder = build or net_builder(note.net)
        method = None if note.method is None else find_method(note.method)
        if method is not None:
            builder = method.adapt_net(builder, note.num_tasks)
        tensors = safetensors.torch.load(data)
        # On the meta device a file that lies about its size takes no memory.
        with torch.device("cpu" if trusted else "meta"):
            net = builder(note.input_shape, note.num_classes)
        return assemble(method, net, tensors)
    except UnknownNameError as error:
        raise SavedNetError(
            f"{file}: {error}. For a net, pass build=... with the function that builds it."
        ) from error
    except RemaskError:
        raise
    except Exception as error:  # the parser's own, and whatever torch makes of odd values
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SavedNetError(
            f"{file} does not fit the net {note.net!r} of its JSON file: {reason:.300}"
        ) from error


def _read(path: Path, most_bytes: int) -> bytes:
    try:
        return read_limited(path, most_bytes)
    except OSError as error:
        raise SavedNetError(
            f"{path} cannot be read: {error.strerror}. A net is two files, NAME.safetensors and "
            f"NAME.json; keep them together."
        ) from error


def _files(path: Path) -> tuple[Path, Path]:
    """The files with the weights and with the description, given either or their common stem."""
    stem = path.with_suffix("") if path.suffix in (".safetensors", ".json") else path
    return stem.with_name(f"{stem.name}.safetensors"), stem.with_name(f"{stem.name}.json")
