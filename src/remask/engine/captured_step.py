"""A step without autograd and without its update, captured as one function."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from remask.engine.capturing import Captured, kept
from remask.losses.trials import Weight
from remask.methods import Batch, Joined, Term
from remask.nets import Factors, StackedNet

_Part = tuple[int, Tensor, Weight, Tensor | None, Tensor | None, Tensor | None]
"""A term by itself: the number of its batch, the labels of that, and the rest of its fields."""
LossesAndSlope = Callable[[Sequence[Term], Joined], tuple[list[Tensor], Tensor]]


class CapturedStep:
    """The forward, the losses and the backward of a step whose loss is terms.

    The update stays outside: compiled, it would write the new weights elsewhere and copy them.
    """

    def __init__(
        self,
        net: StackedNet,
        sizes: Sequence[int],
        device: torch.device,
        losses_and_slope: LossesAndSlope,
    ) -> None:
        self.sizes = list(sizes)
        """How many samples the batches of a step have that is captured."""
        self._net, self._losses_and_slope = net, losses_and_slope
        self._compute_captured = Captured(self._compute, name="the step", device=device)

    def takes(self, joined: Joined, terms: Sequence[Term]) -> bool:
        """Whether the terms are on these batches, and nobody has looked at their logits yet."""
        places = [term.batch.place for term in terms]
        own = all(place is not None and place[0] is joined for place in places)
        return own and bool(terms) and not joined.said

    def __call__(self, joined: Joined, terms: Sequence[Term]) -> tuple[list[Tensor], Factors]:
        """Each term's loss [S], and the gradients of their sum; the batches get their logits."""
        parts: list[_Part] = []
        for term in terms:
            assert term.batch.place is not None
            parts.append((term.batch.place[1], term.batch.labels, *term[1:]))
        losses, logits, factors = self._compute_captured(joined.inputs, parts)
        joined.say(kept(logits))
        return [kept(loss) for loss in losses], factors

    def _compute(
        self, inputs: Tensor, parts: Sequence[_Part]
    ) -> tuple[list[Tensor], Tensor, Factors]:
        trace = self._net.trace(inputs)
        joined = Joined(inputs, self.sizes, self._net)
        joined.say(trace.logits)
        terms = [
            Term(Batch(None, labels, place=(joined, number)), weight, active, mask_value, stored)
            for number, labels, weight, active, mask_value, stored in parts
        ]
        losses, slope = self._losses_and_slope(terms, joined)
        return losses, trace.logits, self._net.factors(trace, slope)
