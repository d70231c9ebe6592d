"""ER-LAS: experience replay with a logit-adjusted softmax (Huang et al. 2024)."""

from typing import ClassVar

import torch
from torch import Tensor

from remask.losses import trial_cross_entropy
from remask.methods.base import Method
from remask.methods.errors import MethodError
from remask.methods.step import Step


class ERLAS(Method):
    """loss = mean CE(f(x) + tau * log(n), y) over the samples of stream and replay together.

    n_c counts the samples of class c in the latest `window` steps, stream and replay; a class that
    was in none of them does not compete. So a class that comes often is not preferred for it.
    """

    name = "er_las"
    title = "ER-LAS"
    weights: ClassVar = {"tau": 1.0, "window": 1.0}
    works_on_host = "the length of the window is read there, once, before the first step"
    draws = 1
    one_forward = True
    remembers = ("counts",)
    unmaskable = "ER-LAS itself says which classes compete on the stream, and how"
    tau: Tensor
    window: Tensor

    def prepare(self) -> None:
        """Nothing has come yet."""
        engine = self.engine
        if not (self.window >= 1).all():
            raise MethodError("ER-LAS counts classes in a window of at least 1 step")
        shape = (engine.trials, int(self.window.max()), engine.num_classes)
        self.counts = torch.zeros(shape, device=engine.device)

    def loss(self, step: Step) -> Tensor:
        """Stream and replay weigh as many samples as they have."""
        batches = [step.stream, *step.replays]
        labels = torch.cat([batch.labels for batch in batches], dim=1)
        came = torch.zeros_like(self.counts[:, 0]).scatter_add_(
            1, labels, torch.ones_like(labels, dtype=self.counts.dtype)
        )
        self.counts.copy_(torch.cat([came.unsqueeze(1), self.counts[:, :-1]], dim=1))
        age = torch.arange(self.counts.shape[1], device=self.counts.device)
        recent = (self.counts * (age < self.window.unsqueeze(1)).unsqueeze(2)).sum(1, keepdim=True)
        adjustment = self.tau.view(-1, 1, 1) * recent.clamp(min=1).log()
        losses = [
            batch.labels.shape[1]
            * trial_cross_entropy(batch.logits + adjustment, batch.labels, recent > 0, None)
            for batch in batches
        ]
        return torch.stack(losses).sum(0) / labels.shape[1]
