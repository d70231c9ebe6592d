"""Saved nets: NAME.safetensors with the weights, and NAME.json that says how to rebuild the net.

The JSON has the digest of the weights, so that no net is ever built from parts of two. Nothing
that is read can run code: a net or method of the user's own is imported only if the caller says so.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import safetensors.torch
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor, nn

from remask.config import TrialConfig
from remask.engine.checkpoints import check_fit
from remask.errors import RemaskError
from remask.files import AnyPath, make_folder, open_regular, read_limited
from remask.methods import Method, MethodError, find_method
from remask.nets.builders import NETS, NetBuilder, net_builder
from remask.nets.stacked import StackedNet
from remask.outputs import write_output
from remask.own_code import names_own_code

if TYPE_CHECKING:
    from remask.engine.trials import TrialStack

_LARGEST_NOTE = 16 << 20
NET, METHOD = "net/", "method/"


def check_predictor(method: type[Method]) -> None:
    """Raise MethodError for a method that overrides `scores` but not `predictor`."""
    scorer, predictor = (
        next(kind for kind in method.__mro__ if name in vars(kind))
        for name in ("scores", "predictor")
    )
    if not issubclass(predictor, scorer):
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
    places = {f"{NET}{n}": place for n, place in (*net.named_parameters(), *net.named_buffers())}
    saved = {
        name: tensor
        for name, tensor in tensors.items()
        if method is None or not name.startswith(METHOD)
    }
    check_fit(saved, places, "the net")
    device = next(iter(tensors.values())).device
    if any(place.is_meta for place in places.values()):
        net = net.to_empty(device=device)
    net = net.to(device)
    places = {f"{NET}{n}": place for n, place in (*net.named_parameters(), *net.named_buffers())}
    with torch.no_grad():
        for name, place in places.items():
            place.copy_(tensors[name])
    if method is None:
        return net.eval()
    own = {n.removeprefix(METHOD): t for n, t in tensors.items() if n.startswith(METHOD)}
    return method.predictor(net.eval(), own).eval()


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
    plain = _defines(method, "predictor") is Method and _defines(method, "adapt_net") is Method
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
    path = Path(path)
    make_folder(path.parent)
    write_output(_with(path, "safetensors"), weights)
    written = json.dumps(note.model_dump(mode="json"), indent=1, allow_nan=False)
    write_output(_with(path, "json"), written.encode() + b"\n")


def read_saved_net(path: AnyPath) -> SavedNet:
    """Read the description of a saved net, without its weights. Raises SavedNetError."""
    note_path = _with(_stem(Path(path)), "json")
    try:
        return SavedNet.model_validate_json(read_limited(note_path, _LARGEST_NOTE))
    except OSError as error:
        raise SavedNetError(
            f"{note_path} cannot be read: {error.strerror}. A net is two files, NAME.safetensors "
            f"and NAME.json; keep them together."
        ) from error
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
    note = read_saved_net(path)
    weights_path = _with(_stem(Path(path)), "safetensors")
    tensors = _read_tensors(weights_path, note.sha256)
    method = _method_of(weights_path, note, own_code=own_code)
    builder = build or _builder_of(weights_path, note, own_code=own_code)
    if method is not None:
        builder = method.adapt_net(builder, note.num_tasks)
    trusted = build is not None or names_own_code(note.net)
    try:
        # On the meta device a file that lies about its size takes no memory.
        with torch.device("cpu" if trusted else "meta"):
            net = builder(note.input_shape, note.num_classes)
        return assemble(method, net, tensors)
    except RemaskError:
        raise
    except (ValueError, RuntimeError, TypeError, KeyError, OverflowError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SavedNetError(
            f"{weights_path} does not fit the net {note.net!r} of its JSON file: {reason:.300}"
        ) from error


def _read_tensors(path: Path, digest: str) -> dict[str, Tensor]:
    try:
        with open_regular(path) as stream:
            data = stream.read()
    except OSError as error:
        raise SavedNetError(f"{path} cannot be read: {error.strerror}") from error
    if hashlib.sha256(data).hexdigest() != digest:
        raise SavedNetError(
            f"{path} is damaged, or is not what {path.with_suffix('.json').name} was written for. "
            f"Bring back a copy, or run the trial again and save its net."
        )
    try:
        return safetensors.torch.load(data)
    except Exception as error:  # the parser's own, and whatever torch makes of odd values
        raise SavedNetError(f"{path} is not a safetensors file: {error}") from error


def _builder_of(path: Path, note: SavedNet, *, own_code: bool) -> NetBuilder:
    if names_own_code(note.net) and not own_code:
        raise SavedNetError(
            f"{path} is a custom net, {note.net!r:.200}. Pass build=... with the "
            f"function that builds it, or own_code=True to import it: importing runs it."
        )
    if not names_own_code(note.net) and note.net.partition(":")[0] not in NETS:
        raise SavedNetError(
            f"{path} is the net {note.net!r:.200}, which is not a known net. Pass build=... with "
            f"the function that builds it."
        )
    return net_builder(note.net)


def _method_of(path: Path, note: SavedNet, *, own_code: bool) -> type[Method] | None:
    if note.method is None:
        return None
    if names_own_code(note.method) and not own_code:
        raise SavedNetError(
            f"{path} uses a custom method to predict, {note.method!r:.200}. Pass "
            f"own_code=True to import it: importing runs it."
        )
    return find_method(note.method)


def _defines(method: type[Method], name: str) -> Any:
    """The class that defines an attribute of a method."""
    return next(kind for kind in method.__mro__ if name in vars(kind))


def _stem(path: Path) -> Path:
    """The path of both files without suffix."""
    return path.with_suffix("") if path.suffix in (".safetensors", ".json") else path


def _with(path: Path, suffix: str) -> Path:
    return path.with_name(f"{path.name}.{suffix}")
