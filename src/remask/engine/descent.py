"""A step of gradient descent, from a method's loss to the updated networks of a stack."""

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from remask.config import TrialConfig
from remask.engine.linear_stack import LinearStack
from remask.errors import MethodError
from remask.methods.base import Method
from remask.methods.step import Joined, Step, Term, added
from remask.nets.stacked import Gradients, LossGradients, StackedNet, per_trial

_LR_DROP = 0.1
_FIRST, _SECOND, _EPSILON, _DECAY = 0.9, 0.999, 1e-8, 0.01  # of AdamW, as in torch

Optimizer = Literal["sgd", "adamw"]


class Descent:
    """Minimises the loss of a method, with one learning rate per trial."""

    def __init__(
        self,
        net: StackedNet,
        method: Method,
        configs: Sequence[TrialConfig],
        device: torch.device,
        optimizer: Optimizer = "sgd",
    ) -> None:
        self.adamw = AdamW(net.parameters) if optimizer == "adamw" else None
        self._net = net
        self._method = method
        self._lr = per_trial_setting([config.lr for config in configs], device)
        self._drops = configs[0].lr_drops
        # Not if a subclass overrides `loss`.
        self._has_terms = type(method).loss is Method.loss
        self._linear = net if isinstance(net, LinearStack) and self._has_terms else None

    def rates(self, epoch: int) -> Tensor:
        """The learning rates [S] in an epoch, counted from 0, of any task."""
        drops = sum(epoch >= drop for drop in self._drops)
        return self._lr * _LR_DROP**drops if drops else self._lr

    def step(self, step: Step, lr: Tensor) -> Tensor:
        """Update the networks; returns the losses, [S]."""
        if self._linear is not None and step.stream.place is not None:
            loss, gradients = self._linear_step(step, self._linear, step.stream.place[0], lr)
        else:
            loss, gradients = self._autograd_step(step, lr)
        adjusted = self._method.adjust_gradients(step, gradients)
        self._net.move(adjusted if self.adamw is None else self.adamw.directions(adjusted), lr)
        return loss

    def _autograd_step(self, step: Step, lr: Tensor) -> tuple[Tensor, LossGradients]:
        if self._has_terms:
            terms = self._method.terms(step)
            loss = self._sum(step, terms, [term.loss() for term in terms])
        else:
            loss = self._method.loss(step)
        self._check_shape(loss, lr)
        if not loss.requires_grad:
            raise MethodError(
                f"the loss of {self._method.title} does not depend on the network, so nothing "
                f"would be learnt"
            )
        return loss.detach(), self._net.gradients(loss)

    @torch.no_grad()
    def _linear_step(
        self, step: Step, net: LinearStack, joined: Joined, lr: Tensor
    ) -> tuple[Tensor, LossGradients]:
        """Compute the same without autograd, for a loss of terms."""
        trace = net.trace(joined.inputs)
        joined.set_logits(trace.logits)
        terms = self._method.terms(step)
        losses, slope = losses_and_slope(terms, joined)
        loss = self._sum(step, terms, losses)
        self._check_shape(loss, lr)
        return loss, net.trace_gradients(trace, slope)

    def _sum(self, step: Step, terms: Sequence[Term], losses: Sequence[Tensor]) -> Tensor:
        """The sum of the terms' losses, [S]; logs each kind of term."""
        context = self._method.context
        if context.noted is not None:
            kinds: dict[str, list[Tensor]] = {}
            for term, loss in zip(terms, losses, strict=True):
                kinds.setdefault(term.kind(step), []).append(loss)
            for name, of_kind in kinds.items():
                context.note(name, added(of_kind))
        return added(losses)

    def _check_shape(self, loss: Tensor, lr: Tensor) -> None:
        if loss.shape != lr.shape:
            raise MethodError(
                f"the loss of {self._method.title} must have one entry per trial, shape "
                f"{list(lr.shape)}, got {list(loss.shape)}"
            )


def losses_and_slope(terms: Sequence[Term], joined: Joined) -> tuple[list[Tensor], Tensor]:
    """Each term's loss [S], and the gradient of their sum in all samples' logits, [S, N, K]."""
    losses: list[Tensor] = []
    slopes: list[Tensor | None] = [None] * len(joined.sizes)
    for term in terms:
        if term.batch.place is None or term.batch.place[0] is not joined:
            raise MethodError(
                "terms must use the batches of the step; write any other loss as `loss`"
            )
        loss, slope = term.loss_and_slope()
        losses.append(loss)
        number = term.batch.place[1]
        earlier = slopes[number]
        slopes[number] = slope if earlier is None else earlier + slope
    if not losses:
        raise MethodError("a loss needs at least one term")
    parts = [
        slope.new_zeros(1, 1, 1).expand(len(slope), size, slope.shape[2]) if own is None else own
        for own, size in zip(slopes, joined.sizes, strict=True)
    ]
    return losses, parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


class AdamW:
    """AdamW (Loshchilov and Hutter 2019) for all trials of a stack at once."""

    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        self._parameters = {n: p for n, p in parameters.items() if p.requires_grad}
        self._means = {name: torch.zeros_like(p) for name, p in self._parameters.items()}
        self._squares = {name: torch.zeros_like(p) for name, p in self._parameters.items()}
        some = next(iter(self._parameters.values()))
        self._steps = torch.zeros(len(some), dtype=torch.float32, device=some.device)

    @torch.no_grad()
    def directions(self, gradients: Gradients) -> Gradients:
        """The directions of a step for gradients by name."""
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


def per_trial_setting(values: Sequence[float], device: torch.device) -> Tensor:
    """One setting of every trial, [S]."""
    return torch.tensor(values, dtype=torch.float32, device=device)
