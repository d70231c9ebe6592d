"""AdamW (Loshchilov and Hutter 2019), for the nets of all trials of a stack at once."""

from collections.abc import Mapping

import torch
from torch import Tensor

from remask.nets import Gradients
from remask.nets.trialwise import per_trial

_FIRST, _SECOND, _EPSILON, _DECAY = 0.9, 0.999, 1e-8, 0.01  # as in torch


class AdamW:
    """Turns gradients into the directions of steps, and remembers their moving averages."""

    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        """`parameters` are those that are trained, each [S, ...], of the nets that are moved."""
        self._parameters = {n: p for n, p in parameters.items() if p.requires_grad}
        self._means = {name: torch.zeros_like(p) for name, p in self._parameters.items()}
        self._squares = {name: torch.zeros_like(p) for name, p in self._parameters.items()}
        some = next(iter(self._parameters.values()))
        self._steps = torch.zeros(len(some), dtype=torch.float32, device=some.device)

    @torch.no_grad()
    def directions(self, gradients: Gradients) -> Gradients:
        """What to move along, for gradients by name; a parameter without one is not moved."""
        self._steps += 1
        found = {}
        for name, gradient in gradients.items():
            parameter = self._parameters[name]
            mean, square = self._means[name], self._squares[name]
            mean.mul_(_FIRST).add_(gradient, alpha=1 - _FIRST)
            square.mul_(_SECOND).addcmul_(gradient, gradient, value=1 - _SECOND)
            steps = per_trial(self._steps, parameter)
            step = mean / (1 - _FIRST**steps)
            step /= (square / (1 - _SECOND**steps)).sqrt_().add_(_EPSILON)
            found[name] = step.add_(parameter, alpha=_DECAY)
        return found

    def state(self) -> dict[str, Tensor]:
        """The tensors to save and restore; the live ones, not copies."""
        return {
            "steps": self._steps,
            **{f"mean/{name}": tensor for name, tensor in self._means.items()},
            **{f"square/{name}": tensor for name, tensor in self._squares.items()},
        }
