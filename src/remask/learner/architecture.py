"""What a learner is built from: its net, its encoder and its method."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from remask.encoders import Encoder, find_encoder
from remask.learner.errors import LearnerError
from remask.learner.features import Features
from remask.learner.manifest import DataNote
from remask.learner.settings import (
    AUTO,
    AUTO_METHOD,
    CLOSED_FORM,
    LINEAR,
    NONE,
    OWN_MODULE,
    LearnerSettings,
)
from remask.methods import METHODS, Method, find_method
from remask.nets import NetBuilder, net_builder
from remask.own_code import names_own_code

NetGiven = str | nn.Module | NetBuilder
EncoderGiven = str | nn.Module
_LIBRARIES = ("timm:", "torchvision:", "hf:")
_NO_HEAD = (
    "the last layer of the net must be an nn.Linear, which becomes the head that grows; or give "
    "the net without it as encoder=..., which stays as it is and gets a head"
)


@dataclass(frozen=True, eq=False)
class Architecture:
    """The net that is trained."""

    name: str
    build: NetBuilder
    """(shape of what is learnt from, outputs) -> the net."""
    given: nn.Module | None = None
    """The net with weights of the user's."""

    @property
    def is_built_in(self) -> bool:
        """Whether the net is one of remask's."""
        return self.name != OWN_MODULE and not names_own_code(self.name)

    def weights(self) -> dict[str, Tensor]:
        """Copies of the weights that the user gave."""
        state = {} if self.given is None else self.given.state_dict()
        return {name: tensor.detach().cpu().clone() for name, tensor in state.items()}

    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Put weights back into the module that was given. Raises LearnerError."""
        assert self.given is not None
        try:
            self.given.load_state_dict(dict(weights))
        except RuntimeError as error:
            raise LearnerError(
                f"the module given is not the one that the learner was created with: "
                f"{str(error).splitlines()[-1].strip()}"
            ) from error


@dataclass(eq=False)
class Parts:
    """The code that a learner runs: what the user gave, or what names in its settings stand for."""

    settings: LearnerSettings
    given_net: NetGiven | None
    given_encoder: EncoderGiven | None
    method: type[Method] | None
    """What trains a net; None if a head in closed form is all there is."""
    device: torch.device
    _architecture: Architecture | None = field(default=None, init=False)
    _encoder: Encoder | None = field(default=None, init=False)

    def architecture(self, data: DataNote | None) -> Architecture:
        """The net of a learner; its first visit decides it if the setting is "auto"."""
        name = self.settings.net if data is None else data.net
        if self._architecture is None or self._architecture.name != name:
            own = self.given_net
            self._architecture = architecture(
                name if own is None or isinstance(own, str) else own, name
            )
        return self._architecture

    def encoder(self, name: str, shape: tuple[int, ...] | None) -> Encoder:
        """Load an encoder, for inputs of a shape if it is a module of the user's."""
        if self._encoder is None or self._encoder.name != name:
            given = self.given_encoder if name == self.settings.encoder else None
            self._encoder = find_encoder(given or name, self.device, shape)
        return self._encoder

    def features(self, data: DataNote) -> Features | None:
        """The module from inputs to features; None if inputs are learnt from as they are.

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


def architecture(net: NetGiven, name: str) -> Architecture:
    """The net that a user gives, by name or as a module. Raises LearnerError, UnknownNameError."""
    if net == LINEAR:
        return Architecture(LINEAR, linear)
    if net == AUTO:
        return Architecture(AUTO, _undecided)
    if isinstance(net, nn.Module):
        if not any(isinstance(layer, nn.Linear) for layer in net.modules()):
            raise LearnerError(_NO_HEAD)
        own = copy.deepcopy(net)
        return Architecture(OWN_MODULE, _WithNewHead(own), own)
    if isinstance(net, str):
        return Architecture(net, net_builder(net))
    return Architecture(name, net)


def _undecided(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    raise AssertionError("the first visit decides which net is built")


def usable_device(device: torch.device | str) -> torch.device:
    """The device that a net is to be on. Raises LearnerError if torch cannot use it."""
    try:
        return torch.empty(1, device=device).device
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise LearnerError(f"the device {str(device)!r} cannot be used: {reason}") from None


def check_given(
    settings: LearnerSettings, net: NetGiven | None, encoder: EncoderGiven | None
) -> None:
    """Refuse to open a learner without the code of its own that it needs. Raises LearnerError.

    Nothing that the settings name is imported unless the caller names it as well.
    """
    if net is None and (settings.net == OWN_MODULE or names_own_code(settings.net)):
        raise LearnerError(
            f"this learner has a net of your own ({settings.net}), whose code is not stored: open "
            f"it with net=... (--net), as it was created, or with the function that builds it"
        )
    if isinstance(net, str) and net != settings.net:
        raise LearnerError(f"this learner has the net {settings.net!r}, not {net!r}")
    named = settings.encoder
    if encoder is None and (named == OWN_MODULE or is_own_encoder(named)):
        raise LearnerError(
            f"this learner has an encoder of your own ({named}), whose code is not stored: open it "
            f"with encoder=... (--encoder), as it was created"
        )
    if isinstance(encoder, str) and encoder != named:
        raise LearnerError(f"this learner has the encoder {named!r}, not {encoder!r}")
    if isinstance(encoder, nn.Module) and named in (AUTO, NONE):
        raise LearnerError(f"this learner was created with encoder={named!r}, not with a module")


def is_own_encoder(name: str) -> bool:
    """Whether a name is `module:function`, not that of a model of a library."""
    return names_own_code(name) and not name.startswith(_LIBRARIES)


def method_of(settings: LearnerSettings, given: type[Method] | str | None) -> type[Method] | None:
    """What trains the net of a learner, if anything does.

    Nothing is imported that the caller does not name.
    """
    if isinstance(given, type):
        return given
    if settings.method in CLOSED_FORM:
        return None
    if settings.method == AUTO:
        return find_method(AUTO_METHOD)
    if names_own_code(settings.method) and given != settings.method:
        raise LearnerError(
            f"this learner learns by a method of your own, {settings.method!r}, whose code is not "
            f"stored: open it with method={settings.method!r}, or with the class"
        )
    return find_method(settings.method)


def name_of(method: type[Method]) -> str:
    """What settings call a method that was given as a class."""
    if method.name in METHODS and METHODS[method.name] is method:
        return method.name
    return f"{method.__module__}:{method.__qualname__}"


def linear(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """A linear classifier that starts at zero: every class is as likely as any other."""
    layer = nn.Linear(int(torch.Size(input_shape).numel()), num_classes)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return nn.Sequential(nn.Flatten(), layer)


class _WithNewHead:
    """Builds a module whose last linear layer is replaced by one with as many outputs as needed."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def __call__(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        net = copy.deepcopy(self._module)
        name = _last_linear(net, input_shape)
        old = net.get_submodule(name)
        assert isinstance(old, nn.Linear)
        head = nn.Linear(old.in_features, num_classes, bias=old.bias is not None)
        if not name:
            return head
        net.set_submodule(name, head)
        return net


def _last_linear(net: nn.Module, input_shape: tuple[int, ...]) -> str:
    """The name of the linear layer whose outputs are the net's."""
    names: dict[nn.Module, str] = {
        layer: name for name, layer in net.named_modules() if isinstance(layer, nn.Linear)
    }
    called: list[tuple[nn.Module, Tensor]] = []
    hooks = [
        layer.register_forward_hook(lambda own, _, output: called.append((own, output)))
        for layer in names
    ]
    try:
        output = _run(net, input_shape)
    finally:
        for hook in hooks:
            hook.remove()
    if not called or called[-1][1] is not output:
        raise LearnerError(_NO_HEAD)
    return names[called[-1][0]]


@torch.no_grad()
def _run(net: nn.Module, input_shape: tuple[int, ...]) -> Tensor:
    training = net.training
    inputs = torch.zeros(2, *input_shape)
    if any(isinstance(layer, nn.Embedding | nn.EmbeddingBag) for layer in net.modules()):
        inputs = inputs.long()
    try:
        output = net.eval()(inputs)
    except Exception as error:
        raise LearnerError(
            f"the module given cannot take inputs {[2, *input_shape]}: "
            f"{type(error).__name__}: {str(error)[:300]}"
        ) from error
    finally:
        net.train(training)
    if not isinstance(output, Tensor) or output.ndim < 2 or len(output) != 2:
        raise LearnerError(
            f"the module given must turn inputs {[2, *input_shape]} into a tensor with a row for "
            f"each"
        )
    return output
