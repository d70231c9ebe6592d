"""ER-LAS: experience replay with a logit-adjusted softmax (Huang et al. 2024)."""

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from remask.errors import MethodError
from remask.methods.base import Method
from remask.methods.step import Step, Term


class ERLAS(Method):
    """loss = mean CE(f(x) + tau * log(n), y) over the samples of stream and replay together.

    n_c counts the samples of class c in the latest `window` steps, stream and replay; a class with
    none is excluded. This removes the preference for frequent classes.
    """

    name = "er_las"
    title = "ER-LAS"
    weights: ClassVar = {"tau": 1.0, "window": 1.0}
    works_on_host = "the window length is read there once, before the first step"
    draws = 1
    one_forward = True
    remembers = ("counts",)
    unmaskable = "ER-LAS itself defines how classes compete on the stream"
    tau: Tensor
    window: Tensor

    def prepare(self) -> None:
        """Start with zero counts."""
        context = self.context
        if not (self.window >= 1).all():
            raise MethodError("ER-LAS needs `window >= 1`")
        shape = (context.trials, int(self.window.max()), context.num_classes)
        self.counts = torch.zeros(shape, device=context.device)

    def terms(self, step: Step) -> list[Term]:
        """Weight stream and replay by their number of samples."""
        batches = [step.stream, *step.replays]
        labels = torch.cat([batch.labels for batch in batches], dim=1)
        came = torch.zeros_like(self.counts[:, 0]).scatter_add_(
            1, labels, torch.ones_like(labels, dtype=self.counts.dtype)
        )
        self.counts.copy_(torch.cat([came.unsqueeze(1), self.counts[:, :-1]], dim=1))
        age = torch.arange(self.counts.shape[1], device=self.counts.device)
        recent = (self.counts * (age < self.window.unsqueeze(1)).unsqueeze(2)).sum(1, keepdim=True)
        adjustment = self.tau.view(-1, 1, 1) * recent.clamp(min=1).log()
        return [
            Term(
                batch,
                float(np.float32(batch.labels.shape[1] / labels.shape[1])),
                recent > 0,
                shift=adjustment,
            )
            for batch in batches
        ]
