"""The growth of heads: a state saved with K classes becomes one of a stack with more."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from remask.data.tasks import StreamError
from remask.methods import Method, MethodError
from remask.nets.stacked import StackedNet

_COUNTS, _LOGITS = "stream/counts", "memory/logits"


def grown_state(
    saved: Mapping[str, Tensor],
    own: Mapping[str, Tensor],
    *,
    net: StackedNet,
    method: type[Method],
    absent_logits: Tensor,
    input_shape: tuple[int, ...],
) -> dict[str, Tensor]:
    """Convert a state saved with K classes to one of a stack with more, whose state is `own`.

    The new rows of the last linear layer, and of all copies of it that a method keeps, are 0. So
    the weights of known classes keep their bits, and the logits of new classes are exactly 0.
    Stored logits are filled up with 0 or, where the mask is stored with them, with
    `absent_logits` [S * M]. Everything else with an axis of classes, such as counts, starts at 0.

    An axis of classes is one whose length is the old number of classes in the saved state and the
    new number in this stack. Raises StreamError if the state is not that of an open stream with
    fewer classes, and MethodError if the net or the method cannot grow.
    """
    if _COUNTS not in saved or _COUNTS not in own:
        raise StreamError("only a stack whose tasks come one by one can grow its head")
    known, classes = saved[_COUNTS].shape[1], own[_COUNTS].shape[1]
    if known > classes:
        raise StreamError(f"the state has {known} classes, but the stack only {classes}")
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
    some = next(iter(state.values()))
    probe = torch.rand((len(some), 2, *input_shape), generator=torch.Generator().manual_seed(0))
    logits = net.evaluate(probe.to(some.device), state)
    if bool((logits[..., known:] != 0).any()):
        raise MethodError(
            "the net cannot grow: a row of zeros in its last linear layer gives a logit that is "
            "not 0, since another layer follows it"
        )
    return grown


def _padded(name: str, saved: Tensor, own: Tensor, known: int, classes: int) -> Tensor:
    """A tensor with entries for new classes in every axis of classes."""
    if saved.ndim != own.ndim:
        return saved  # `check_fit` will refuse it
    pad: list[int] = []
    for had, has in zip(reversed(saved.shape), reversed(own.shape), strict=True):
        if had < has and (had, has) != (known, classes):
            raise MethodError(
                f"the head cannot grow: {name} is {list(saved.shape)} with {known} classes and "
                f"{list(own.shape)} with {classes}, so its axis of classes is ambiguous"
            )
        pad += [0, classes - known if had < has else 0]
    return nn.functional.pad(saved, pad) if any(pad) else saved
