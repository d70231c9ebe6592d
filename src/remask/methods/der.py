"""DER: dark experience replay (Buzzega et al. 2020)."""

from typing import ClassVar

import torch

from remask.losses import logit_mse
from remask.methods.base import Method
from remask.methods.step import Step


class DER(Method):
    """loss = CE(stream) + alpha * MSE(logits, stored logits)."""

    name = "der"
    title = "DER"
    summary = "recalls the logits it once gave to stored samples"
    weights: ClassVar = {"alpha": 0.2}
    draws = 1
    stores_logits = True
    alpha: torch.Tensor

    def loss(self, step: Step) -> torch.Tensor:
        """The stream's cross-entropy, and the distance to what the network once said."""
        loss = step.stream_loss()
        self.engine.note("stream", loss)
        if not step.replays:
            return loss
        (recalled,) = step.replays
        distillation = logit_mse(recalled.logits, recalled.recorded)
        self.engine.note("distillation", distillation)
        return loss + self.alpha * distillation
