"""ER-ACE: experience replay with an asymmetric cross-entropy (Caccia et al. 2022)."""

import torch

from remask.methods.base import Method
from remask.methods.step import Step, Term


class ERACE(Method):
    """loss = CE(stream, among the batch's own and the unseen classes) + CE(replay, among all).

    Closely related to the masked softmax at -inf, which also excludes unseen classes.
    """

    name = "er_ace"
    title = "ER-ACE"
    draws = 1
    remembers = ("seen",)
    unmaskable = "ER-ACE itself defines which classes compete on the stream"

    def prepare(self) -> None:
        """Start with no class seen."""
        shape = (self.context.trials, self.context.num_classes)
        self.seen = torch.zeros(shape, dtype=torch.bool, device=self.context.device)

    def terms(self, step: Step) -> list[Term]:
        """Exclude seen classes that are not in the batch."""
        present = torch.zeros_like(self.seen).scatter_(1, step.stream.labels, True)
        self.seen |= present
        competing = (present | ~self.seen).unsqueeze(1)
        return [Term(step.stream, active=competing), *(Term(replay) for replay in step.replays)]
