"""Heads that grow: a state that was saved with fewer classes, as one of a stack that has more."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from remask.methods import Method, MethodError
from remask.nets import StackedNet
from remask.streams import StreamError

_COUNTS, _LOGITS, _CONFIDENCE = "stream/counts", "memory/logits", "metrics/confidence"


def grown_state(
    saved: Mapping[str, Tensor],
    own: Mapping[str, Tensor],
    *,
    net: StackedNet,
    method: type[Method],
    absent_logits: Tensor,
    input_shape: tuple[int, ...],
) -> dict[str, Tensor]:
    """A state saved with K classes, as that of a stack with more, whose own state is `own`.

    The new rows of the last linear layer are 0, and so are those of all copies of it that a method
    keeps. So the weights of known classes are the same bit for bit (and their logits, as far as a
    product with a wider matrix rounds alike), and the new logits are exactly 0 for every input.
    A head as wide from the beginning would have said the same, if these rows had started at 0 and
    nothing had moved them: so logits that were stored earlier are valid for the grown head once
    they are filled up with 0, or, where the mask is stored with them, with what `absent_logits`
    says, [S * M]. Whatever else has an axis of classes, as counts do, begins at 0, too.

    A tensor's axes of classes are those that have K entries in the saved state and as many as there
    are classes in the new one: all others are the same, or grow with the tasks. Raises StreamError
    if the state is not one of an open stream with fewer classes, and MethodError if the net or the
    method cannot grow.
    """
    if _COUNTS not in saved or _COUNTS not in own:
        raise StreamError("only a stack whose tasks come one by one has a head that can grow")
    known, classes = saved[_COUNTS].shape[1], own[_COUNTS].shape[1]
    if known > classes:
        raise StreamError(f"the state has {known} classes, for which {classes} are not enough")
    if known == classes:
        return dict(saved)
    if method.ungrowable:
        raise MethodError(f"the head of {method.title} cannot grow: {method.ungrowable}")
    grown = {
        name: _padded(name, tensor, own[name], known, classes) if name in own else tensor
        for name, tensor in saved.items()
    }
    if _LOGITS in grown:
        grown[_LOGITS][:, known:] = absent_logits.to(grown[_LOGITS].device).unsqueeze(1)
    _check_head(net, saved, grown, known, input_shape)
    return grown


def _padded(name: str, saved: Tensor, own: Tensor, known: int, classes: int) -> Tensor:
    """A tensor with entries for new classes in every axis of classes."""
    if saved.ndim != own.ndim:
        return saved  # it does not fit, and whoever restores it will say so
    pad: list[int] = []
    for had, has in zip(reversed(saved.shape), reversed(own.shape), strict=True):
        if had < has and (had, has) != (known, classes):
            raise MethodError(
                f"the head cannot grow: {name} was {list(saved.shape)} with {known} classes and is "
                f"{list(own.shape)} with {classes}, and it is not clear how one becomes the other"
            )
        pad += [0, classes - known if had < has else 0]
    value = torch.nan if name == _CONFIDENCE else 0  # which is not measured yet
    return nn.functional.pad(saved, pad, value=value) if any(pad) else saved


def _check_head(
    net: StackedNet,
    saved: Mapping[str, Tensor],
    grown: Mapping[str, Tensor],
    known: int,
    input_shape: tuple[int, ...],
) -> None:
    """Refuse a net in which 0 for the new classes changes what is said of others."""
    linear = {name for name, part in net.module.named_modules() if isinstance(part, nn.Linear)}
    state = {name: grown[f"net/{name}"] for name in net.state()}
    for name, tensor in state.items():
        before, (layer, _, kind) = saved[f"net/{name}"], name.rpartition(".")
        if tensor.shape == before.shape:
            continue
        if layer not in linear or (kind == "weight" and tensor.shape[2] != before.shape[2]):
            raise MethodError(
                f"the net cannot grow: {name} depends on the number of classes, and only the "
                f"outputs of an nn.Linear may"
            )
    trials = len(next(iter(state.values())))
    device = next(iter(state.values())).device
    probe = torch.rand((trials, 2, *input_shape), generator=torch.Generator().manual_seed(0))
    said = net.evaluate(probe.to(device), {n: t.to(device) for n, t in state.items()})
    if bool((said[..., known:] != 0).any()):
        raise MethodError(
            "the net cannot grow: a row of zeros in its last linear layer gives a logit that is "
            "not 0, since something comes after that layer"
        )
