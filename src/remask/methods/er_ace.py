"""ER-ACE: experience replay with an asymmetric cross-entropy (Caccia et al. 2022)."""

import torch

from remask.methods.base import Method
from remask.methods.step import Step, Term


class ERACE(Method):
    """loss = CE(stream, among the batch's own and the unseen classes) + CE(replay, among all).

    The nearest relative of the masked softmax at -inf: there, unseen classes are left out, too.
    """

    name = "er_ace"
    title = "ER-ACE"
    draws = 1
    remembers = ("seen",)
    unmaskable = "ER-ACE itself says which classes compete on the stream"

    def prepare(self) -> None:
        """No class has been seen yet."""
        shape = (self.engine.trials, self.engine.num_classes)
        self.seen = torch.zeros(shape, dtype=torch.bool, device=self.engine.device)

    def terms(self, step: Step) -> list[Term]:
        """Seen classes that are not in the batch are left in peace."""
        present = torch.zeros_like(self.seen).scatter_(1, step.stream.labels, True)
        self.seen |= present
        competing = (present | ~self.seen).unsqueeze(1)
        return [Term(step.stream, active=competing), *(Term(replay) for replay in step.replays)]
