"""From the loss of a step to updated networks."""

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
        self._net, self._method = net, method
        self._lr = torch.tensor([config.lr for config in configs], device=device)
        self._drops = configs[0].lr_drops
        kind = type(method)
        self._has_terms = kind.loss is Method.loss  # not if a subclass overrides it
        self._linear = net if isinstance(net, LinearStack) and self._has_terms else None
        adjusts = kind.adjust_gradients is not Method.adjust_gradients
        self._needs_gradients = adjusts or self.adamw is not None

    def rates(self, epoch: int) -> Tensor:
        """The learning rates [S] in an epoch, counted from 0, of any task."""
        drops = sum(epoch >= drop for drop in self._drops)
        return self._lr * _LR_DROP**drops if drops else self._lr

    def step(self, step: Step, lr: Tensor) -> Tensor:
        """Update the networks; returns the losses, [S]."""
        linear, joined = self._linear, step.stream.joined
        if linear is None:
            loss = self._loss(step)
            self._move(step, self._net.gradients(loss), lr)
            return loss.detach()
        with torch.no_grad():
            trace = linear.trace(joined.inputs)
            joined.set_logits(trace.logits)
            terms = self._method.terms(step)
            losses, slope = losses_and_slope(terms, joined, trace.logits)
            loss = self._sum(step, terms, losses)
        if self._needs_gradients:
            self._move(step, linear.trace_gradients(trace, slope), lr)
        else:
            linear.follow(trace, slope, lr)
        return loss

    def _move(self, step: Step, gradients: LossGradients, lr: Tensor) -> None:
        adjusted = self._method.adjust_gradients(step, gradients)
        self._net.move(adjusted if self.adamw is None else self.adamw.directions(adjusted), lr)

    def _loss(self, step: Step) -> Tensor:
        """The loss for autograd, [S]."""
        if self._has_terms:
            terms = self._method.terms(step)
            loss = self._sum(step, terms, [term.loss() for term in terms])
        else:
            loss = self._method.loss(step)
        if loss.shape != self._lr.shape:
            raise MethodError(
                f"the loss of {self._method.title} must have one entry per trial, shape "
                f"{list(self._lr.shape)}, got {list(loss.shape)}"
            )
        if not loss.requires_grad:
            raise MethodError(
                f"the loss of {self._method.title} does not depend on the network, so nothing "
                f"would be learnt"
            )
        return loss

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


def losses_and_slope(
    terms: Sequence[Term], joined: Joined, logits: Tensor
) -> tuple[list[Tensor], Tensor]:
    """Each term's loss [S], and the gradient of their sum in the joined logits, [S, N, K]."""
    losses = []
    whole = torch.zeros_like(logits)
    slopes = torch.split(whole, joined.sizes, dim=1)
    for term in terms:
        if term.batch.joined is not joined:
            raise MethodError(
                "terms must use the batches of the step; write any other loss as `loss`"
            )
        loss, slope = term.loss_and_slope()
        losses.append(loss)
        slopes[term.batch.number].add_(slope)
    if not losses:
        raise MethodError("a loss needs at least one term")
    return losses, whole


class AdamW:
    """AdamW (Loshchilov and Hutter 2019) for all trials of a stack at once."""

    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        self._parameters = {n: p for n, p in parameters.items() if p.requires_grad}
        some = next(iter(self._parameters.values()))
        self.state = {"steps": torch.zeros(len(some), dtype=torch.float32, device=some.device)}
        """The tensors to save and restore; the live ones, not copies."""
        for moment in ("mean", "square"):
            for name, parameter in self._parameters.items():
                self.state[f"{moment}/{name}"] = torch.zeros_like(parameter)

    @torch.no_grad()
    def directions(self, gradients: Gradients) -> Gradients:
        """The directions of a step for gradients by name."""
        self.state["steps"] += 1
        found = {}
        for name, gradient in gradients.items():
            parameter = self._parameters[name]
            mean, square = self.state[f"mean/{name}"], self.state[f"square/{name}"]
            mean.mul_(_FIRST).add_(gradient, alpha=1 - _FIRST)
            square.mul_(_SECOND).addcmul_(gradient, gradient, value=1 - _SECOND)
            steps = per_trial(self.state["steps"], parameter)
            step = mean / (1 - _FIRST**steps)
            step /= (square / (1 - _SECOND**steps)).sqrt_().add_(_EPSILON)
            found[name] = step.add_(parameter, alpha=_DECAY)
        return found
