"""LODE: loss decoupling (Liang and Li 2023), the form that builds on ER."""

from typing import ClassVar

from torch import Tensor

from remask.methods.base import Method
from remask.methods.step import Step


class LODE(Method):
    """loss = [CE(stream, among new) + rho * N / O * CE(new against old) + CE(replay)] / 2.

    The stream's cross-entropy is exactly CE(among new) + CE(new against old). The second term
    causes forgetting; its weight falls with the ratio of old classes O to the N of the task. Unseen
    classes count as new.
    """

    name = "lode"
    title = "LODE"
    weights: ClassVar = {"rho": 0.1}
    draws = 1
    unmaskable = "LODE itself defines how new classes compete with old ones"
    rho: Tensor

    @classmethod
    def uses_tasks(cls) -> bool:
        """It needs to know which classes are old."""
        return True

    def loss(self, step: Step) -> Tensor:
        """Return the decoupled loss; in the first task, the plain one."""
        stream, task = step.stream, step.task
        loss = step.cross_entropy(stream)
        if task.number:
            among_new = step.cross_entropy(stream, among=~task.old)
            balance = self.rho * (task.classes.sum() / task.old.sum().clamp(min=1))
            loss = among_new + balance * (loss - among_new)
        if not step.replays:
            return loss
        (replay,) = step.replays
        stream_loss, replay_loss = loss / 2, step.cross_entropy(replay) / 2
        self.context.note("stream", stream_loss)
        self.context.note("replay", replay_loss)
        return stream_loss + replay_loss
