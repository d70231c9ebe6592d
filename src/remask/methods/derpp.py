"""DER++: dark experience replay with labels (Buzzega et al. 2020). With a mask: MSDER++."""

from typing import ClassVar

import torch

from remask.losses import logit_mse
from remask.methods.base import Method
from remask.methods.step import Step


class DERpp(Method):
    """loss = CE(stream) + alpha * MSE(logits, stored logits) + beta * CE(replay).

    alpha weighs the distillation and beta the replayed labels, as in DER++ itself; the caption of
    the masked-softmax paper's table of settings has the two the other way round.
    """

    name = "derpp"
    title = "DER++"
    summary = (
        "recalls stored logits and, in a second draw, relearns stored labels; with a mask: MSDER++"
    )
    weights: ClassVar = {"alpha": 0.2, "beta": 1.0}
    draws = 2
    stores_logits = True
    alpha: torch.Tensor
    beta: torch.Tensor

    def loss(self, step: Step) -> torch.Tensor:
        """The two replay terms come from two independent draws."""
        loss = step.stream_loss()
        self.engine.note("stream", loss)
        if not step.replays:
            return loss
        recalled, relearnt = step.replays
        distillation = logit_mse(recalled.logits, recalled.recorded)
        replay = step.cross_entropy(relearnt)
        self.engine.note("distillation", distillation)
        self.engine.note("replay", replay)
        return loss + self.alpha * distillation + self.beta * replay
