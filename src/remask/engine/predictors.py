"""Getting a model out: one trial's net, as an ordinary nn.Module that scores as its method does."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from remask.engine.state import check_fit
from remask.methods import Method, MethodError
from remask.nets.stacked import StackedNet

NET, METHOD = "net/", "method/"


def check_predictor(method: type[Method]) -> None:
    """Refuse a method that scores in its own way and does not say how one net would."""
    scorer, predictor = (
        next(kind for kind in method.__mro__ if name in vars(kind))
        for name in ("scores", "predictor")
    )
    if not issubclass(predictor, scorer):
        raise MethodError(
            f"{method.title} predicts in its own way (it defines `scores`), so its net alone would "
            f"predict something else. Define `predictor` as well to get its nets out."
        )


def trial_tensors(net: StackedNet, method: Method, trial: int) -> dict[str, Tensor]:
    """Copies of all that one trial predicts with, by name: its net's, and its method's own."""
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
    """Fill a net with what `trial_tensors` gave, and make of it what the method predicts with.

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
