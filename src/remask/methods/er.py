"""Experience replay (Rolnick et al. 2019; Riemer et al. 2019), and how classes compete in it."""

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from remask.errors import MethodError
from remask.methods.base import Method
from remask.methods.step import Step, Term


class ER(Method):
    """loss = mean CE over the samples of stream and replay together.

    Under the online protocol: mean CE over the stream + mean CE over the replay.
    """

    name = "er"
    title = "ER"
    fixed_terms = True
    draws = 1
    one_forward = True

    def terms(self, step: Step) -> list[Term]:
        if not step.replays:
            return step.stream_terms()
        (replay,) = step.replays
        if self.context.sums_batches:
            return [*step.stream_terms(), Term(replay)]
        sizes = step.stream.labels.shape[1], replay.labels.shape[1]
        # Rounded to float32: a weight has the same bits as a number and as a tensor [S].
        stream, replayed = (float(np.float32(size / sum(sizes))) for size in sizes)
        return [*step.stream_terms(stream), Term(replay, replayed)]


class ERACE(Method):
    """loss = CE(stream, among the batch's own and the unseen classes) + CE(replay, among all).

    Closely related to the masked softmax at -inf, which also excludes unseen classes. (Caccia et
    al. 2022)
    """

    name = "er_ace"
    title = "ER-ACE"
    draws = 1
    remembers = ("seen",)
    unmaskable = "ER-ACE itself defines which classes compete on the stream"

    def prepare(self) -> None:
        shape = (self.context.trials, self.context.num_classes)
        self.seen = torch.zeros(shape, dtype=torch.bool, device=self.context.device)

    def terms(self, step: Step) -> list[Term]:
        """Exclude seen classes that are not in the batch."""
        present = torch.zeros_like(self.seen).scatter_(1, step.stream.labels, True)
        self.seen |= present
        competing = (present | ~self.seen).unsqueeze(1)
        return [Term(step.stream, active=competing), *(Term(replay) for replay in step.replays)]


class ERLAS(Method):
    """loss = mean CE(f(x) + tau * log(n), y) over the samples of stream and replay together.

    n_c counts the samples of class c in the latest `window` steps, stream and replay; a class with
    none is excluded. This removes the preference for frequent classes. (Huang et al. 2024)
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
        context = self.context
        if not (self.window >= 1).all():
            raise MethodError("ER-LAS needs `window >= 1`")
        shape = (context.trials, int(self.window.max()), context.num_classes)
        self.counts = torch.zeros(shape, device=context.device)

    def terms(self, step: Step) -> list[Term]:
        batches = [step.stream, *step.replays]
        labels = torch.cat([batch.labels for batch in batches], dim=1)
        counts = torch.zeros_like(self.counts[:, 0]).scatter_add_(
            1, labels, torch.ones_like(labels, dtype=self.counts.dtype)
        )
        self.counts.copy_(torch.cat([counts.unsqueeze(1), self.counts[:, :-1]], dim=1))
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
