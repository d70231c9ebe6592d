"""DER and DER++: dark experience replay (Buzzega et al. 2020). With a mask: MSDER++."""

from typing import ClassVar

import torch

from remask.methods.base import Method
from remask.methods.step import Step, Term


class DER(Method):
    """loss = CE(stream) + alpha * MSE(logits, stored logits)."""

    name = "der"
    title = "DER"
    fixed_terms = True
    weights: ClassVar = {"alpha": 0.2}
    draws = 1
    stores_logits = True
    alpha: torch.Tensor

    def terms(self, step: Step) -> list[Term]:
        recalled = [Term(batch, self.alpha, stored=batch.recorded) for batch in step.replays]
        return step.stream_terms() + recalled


class DERpp(Method):
    """loss = CE(stream) + alpha * MSE(logits, stored logits) + beta * CE(replay).

    alpha weights the distillation and beta the replayed labels, as in DER++; the caption of the
    masked-softmax paper's table of settings swaps the two.
    """

    name = "derpp"
    title = "DER++"
    fixed_terms = True
    weights: ClassVar = {"alpha": 0.2, "beta": 1.0}
    draws = 2
    stores_logits = True
    alpha: torch.Tensor
    beta: torch.Tensor

    def terms(self, step: Step) -> list[Term]:
        """Return the terms; the two replay terms use independent draws."""
        terms = step.stream_terms()
        if step.replays:
            recalled, relearnt = step.replays
            terms.append(Term(recalled, self.alpha, stored=recalled.recorded))
            terms.append(Term(relearnt, self.beta))
        return terms
