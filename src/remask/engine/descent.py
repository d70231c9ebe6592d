"""A step of gradient descent: what a method's loss does to the networks of a stack."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from remask.config import TrialConfig
from remask.engine.adamw import AdamW
from remask.methods import Joined, Method, MethodError, Step, Term
from remask.methods.step import added
from remask.nets import LossGradients, StackedNet

_LR_DROP = 0.1

Optimizer = Literal["sgd", "adamw"]


class Descent:
    """Follows the loss of a method, with the learning rates of the trials."""

    def __init__(
        self,
        net: StackedNet,
        method: Method,
        configs: Sequence[TrialConfig],
        device: torch.device,
        optimizer: Optimizer = "sgd",
    ) -> None:
        self.adamw = AdamW(net.parameters) if optimizer == "adamw" else None
        """What AdamW remembers; None: steps are along the gradients."""
        self._net = net
        self._method = method
        self._lr = per_trial_setting([config.lr for config in configs], device)
        self._drops = configs[0].lr_drops
        # Not if a subclass has put another loss in the place of the terms.
        self._has_terms = type(method).loss is Method.loss
        self._by_hand = net.traces and self._has_terms

    def rates(self, epoch: int) -> Tensor:
        """The trials' learning rates [S] in an epoch, counted from 0, of any task."""
        drops = sum(epoch >= drop for drop in self._drops)
        return self._lr * _LR_DROP**drops if drops else self._lr

    def step(self, step: Step, lr: Tensor) -> Tensor:
        """Update the networks; returns the losses, [S]."""
        if self._by_hand and step.stream.place is not None:
            return self._step_by_hand(step, step.stream.place[0], lr)
        if self._has_terms:
            terms = self._method.terms(step)
            loss = self._noted(step, terms, [term.loss() for term in terms])
        else:
            loss = self._method.loss(step)
        self._check_shape(loss, lr)
        if not loss.requires_grad:
            raise MethodError(
                f"the loss of {self._method.title} does not depend on the network: nothing would "
                f"be learnt"
            )
        self._move(step, self._net.gradients(loss), lr)
        return loss.detach()

    def _step_by_hand(self, step: Step, joined: Joined, lr: Tensor) -> Tensor:
        """The same, for a loss of terms, without autograd."""
        with torch.no_grad():
            trace = self._net.trace(joined.inputs)
            joined.set_logits(trace.logits)
            terms = self._method.terms(step)
            losses, slope = losses_and_slope(terms, joined)
            loss = self._noted(step, terms, losses)
            self._check_shape(loss, lr)
            factors = self._net.factors(trace, slope)
        self._move(step, self._net.factored(factors), lr)
        return loss

    def _noted(self, step: Step, terms: Sequence[Term], losses: Sequence[Tensor]) -> Tensor:
        """The sum of the terms' losses, [S]; each kind of term is logged, if losses are."""
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
                f"the loss of {self._method.title} must have one entry per trial, "
                f"{list(lr.shape)}, not the shape {list(loss.shape)}"
            )

    def _move(self, step: Step, gradients: LossGradients, lr: Tensor) -> None:
        adjusted = self._method.adjust_gradients(step, gradients)
        self._net.move(adjusted if self.adamw is None else self.adamw.directions(adjusted), lr)


def losses_and_slope(terms: Sequence[Term], joined: Joined) -> tuple[list[Tensor], Tensor]:
    """Each term's loss [S], and the gradient of their sum in all samples' logits, [S, N, K]."""
    losses: list[Tensor] = []
    slopes: list[Tensor | None] = [None] * len(joined.sizes)
    for term in terms:
        if term.batch.place is None or term.batch.place[0] is not joined:
            raise MethodError("terms are on the step's batches; write any other loss as `loss`")
        loss, slope = term.loss_and_slope()
        losses.append(loss)
        number = term.batch.place[1]
        earlier = slopes[number]
        slopes[number] = slope if earlier is None else earlier + slope
    if not losses:
        raise MethodError("a loss has at least one term")
    parts = [
        losses[0].new_zeros(1, 1, 1).expand(len(slope), size, slope.shape[2])
        if own is None
        else own
        for own, size in zip(slopes, joined.sizes, strict=True)
    ]
    return losses, parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def per_trial_setting(values: Sequence[float], device: torch.device) -> Tensor:
    """One setting of every trial, [S]."""
    return torch.tensor(values, dtype=torch.float32, device=device)
