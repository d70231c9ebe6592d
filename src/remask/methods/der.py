"""DER: dark experience replay (Buzzega et al. 2020)."""

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
        """Return the stream's cross-entropy and the distance to the stored logits."""
        recalled = [Term(batch, self.alpha, stored=batch.recorded) for batch in step.replays]
        return step.stream_terms() + recalled
