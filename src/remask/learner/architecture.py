"""The net of a learner: how it is built, and which weights the user gave it."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from remask.learner.errors import LearnerError
from remask.learner.settings import LINEAR, OWN_BACKBONE, OWN_MODULE, LearnerSettings
from remask.methods import METHODS, Method, find_method
from remask.nets import NetBuilder, net_builder
from remask.own_code import names_own_code

NetGiven = str | nn.Module | NetBuilder
_NO_HEAD = (
    "the last layer of the net must be an nn.Linear, which becomes the head that grows; or give it "
    "as backbone=..., which gets a head"
)


@dataclass(frozen=True, eq=False)
class Architecture:
    """What the net of a learner is made of."""

    name: str
    """What the settings call it."""
    build: NetBuilder
    """(shape of what is learnt from, outputs) -> the net that is trained."""
    given: nn.Module | None = None
    """What has weights that the user gave: the whole net, or the backbone."""
    frozen: bool = False
    """Whether what is given is a backbone that only computes the features to learn from."""

    @property
    def is_built_in(self) -> bool:
        """Whether all of its code is part of remask."""
        own = self.name in (OWN_MODULE, OWN_BACKBONE) or names_own_code(self.name)
        return self.given is None and not own

    def weights(self) -> dict[str, Tensor]:
        """Copies of what the user gave."""
        state = {} if self.given is None else self.given.state_dict()
        return {name: tensor.detach().cpu().clone() for name, tensor in state.items()}

    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Put weights back into what was given. Raises LearnerError if they do not fit."""
        assert self.given is not None
        try:
            self.given.load_state_dict(dict(weights))
        except RuntimeError as error:
            raise LearnerError(
                f"the module given is not the one that the learner was created with: "
                f"{str(error).splitlines()[-1].strip()}"
            ) from error


def architecture(net: NetGiven | None, backbone: nn.Module | None, *, freeze: bool) -> Architecture:
    """What the user gives, by name or as modules. Raises LearnerError or UnknownNameError."""
    if backbone is not None:
        own = copy.deepcopy(backbone)
        if freeze:
            return Architecture(LINEAR, linear, own.eval().requires_grad_(False), frozen=True)
        return Architecture(OWN_BACKBONE, _UnderHead(own), own)
    if freeze:
        raise LearnerError("freeze=True keeps a backbone as it is: give backbone=..., too")
    if net == LINEAR:
        return Architecture(LINEAR, linear)
    if isinstance(net, nn.Module):
        if not any(isinstance(layer, nn.Linear) for layer in net.modules()):
            raise LearnerError(_NO_HEAD)
        own = copy.deepcopy(net)
        return Architecture(OWN_MODULE, _WithNewHead(own), own)
    if isinstance(net, str):
        return Architecture(net, net_builder(net))
    if callable(net):
        return Architecture(OWN_MODULE, net)
    raise LearnerError(f"net={net!r:.60}: give a name, module:function or an nn.Module")


def usable_device(device: torch.device | str) -> torch.device:
    """The device that a net is to be on. Raises LearnerError if torch cannot use it."""
    try:
        return torch.empty(1, device=device).device
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise LearnerError(f"the device {str(device)!r} cannot be used: {reason}") from None


def reopened(
    settings: LearnerSettings, net: NetGiven | None, backbone: nn.Module | None
) -> Architecture:
    """The architecture of a learner that is there. Raises LearnerError if its code is missing.

    Nothing that the settings name is imported unless the caller names it as well.
    """
    if settings.freeze or settings.net == OWN_BACKBONE:
        if backbone is None:
            raise LearnerError(
                "this learner has a backbone of your own, whose code is not stored: open it with "
                "backbone=..., a module like the one that it was created with"
            )
        return architecture(None, backbone, freeze=settings.freeze)
    if net is None and (settings.net == OWN_MODULE or names_own_code(settings.net)):
        raise LearnerError(
            f"this learner has a net of your own ({settings.net}), whose code is not stored: open "
            f"it with net=... (--net), as it was created, or with the function that builds it"
        )
    if isinstance(net, str) and net != settings.net:
        raise LearnerError(f"this learner has the net {settings.net!r}, not {net!r}")
    return architecture(settings.net if net is None else net, None, freeze=False)


def method_of(settings: LearnerSettings, given: type[Method] | str | None) -> type[Method]:
    """The method of a learner. Nothing is imported that the caller does not name."""
    if isinstance(given, type):
        return given
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


class _UnderHead:
    """Builds a backbone with a linear head on top."""

    def __init__(self, backbone: nn.Module) -> None:
        self._backbone = backbone

    def __call__(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        features = feature_shape(self._backbone, input_shape)
        head = nn.Linear(int(torch.Size(features).numel()), num_classes)
        return nn.Sequential(copy.deepcopy(self._backbone), nn.Flatten(), head)


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


def feature_shape(backbone: nn.Module, input_shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of what a backbone makes of one input. Raises LearnerError."""
    return tuple(_run(backbone, input_shape).shape[1:])


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
