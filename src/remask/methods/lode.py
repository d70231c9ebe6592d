"""LODE: loss decoupling (Liang and Li 2023), the form that builds on ER."""

from typing import ClassVar

from torch import Tensor

from remask.methods.base import Method
from remask.methods.step import Step


class LODE(Method):
    """loss = [CE(stream, among new) + rho * N / O * CE(new against old) + CE(replay)] / 2.

    The cross-entropy of the stream is CE(among new) + CE(new against old), exactly: which of the
    new classes, and is it a new one. The second, which makes old classes be forgotten, weighs less
    the more old classes O there are to the N of the task. Classes not seen yet count as new.
    """

    name = "lode"
    title = "LODE"
    weights: ClassVar = {"rho": 0.1}
    draws = 1
    unmaskable = "LODE itself says how new classes compete with old ones"
    rho: Tensor

    @classmethod
    def uses_tasks(cls) -> bool:
        """It must be told which classes are old."""
        return True

    def loss(self, step: Step) -> Tensor:
        """In the first task no class is old, and nothing is decoupled."""
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
        self.engine.note("stream", stream_loss)
        self.engine.note("replay", replay_loss)
        return stream_loss + replay_loss
