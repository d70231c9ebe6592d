"""ER-ACE: experience replay with an asymmetric cross-entropy (Caccia et al. 2022)."""

import torch

from remask.methods.base import Method
from remask.methods.step import Step


class ERACE(Method):
    """loss = CE(stream, among the batch's own and the unseen classes) + CE(replay, among all).

    The nearest relative of the masked softmax at -inf: there, unseen classes are left out, too.
    """

    name = "er_ace"
    title = "ER-ACE"
    summary = "lets a batch's own classes compete in the stream, and all classes in the replay"
    draws = 1
    remembers = ("seen",)
    unmaskable = "ER-ACE itself says which classes compete on the stream"

    def prepare(self) -> None:
        """No class has been seen yet."""
        shape = (self.engine.trials, self.engine.num_classes)
        self.seen = torch.zeros(shape, dtype=torch.bool, device=self.engine.device)

    def loss(self, step: Step) -> torch.Tensor:
        """Seen classes that are not in the batch are left in peace."""
        present = torch.zeros_like(self.seen).scatter_(1, step.stream.labels, True)
        self.seen |= present
        loss = step.cross_entropy(step.stream, among=(present | ~self.seen).unsqueeze(1))
        self.engine.note("stream", loss)
        for replay in step.replays:
            replay_loss = step.cross_entropy(replay)
            self.engine.note("replay", replay_loss)
            loss = loss + replay_loss
        return loss
