"""LODE: loss decoupling (Liang and Li 2023), the form that builds on ER."""

from typing import ClassVar

from torch import Tensor

from remask.methods.base import Method
from remask.methods.step import Step, Term


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
    fixed_terms = True
    unmaskable = "LODE itself defines how new classes compete with old ones"
    uses_tasks = True  # it needs to know which classes are old
    rho: Tensor

    def terms(self, step: Step) -> list[Term]:
        """Return the decoupled terms; in the first task, the plain one."""
        task, half = step.task, 0.5 if step.replays else 1.0
        replayed = [Term(replay, half) for replay in step.replays]
        if not task.number:
            return [Term(step.stream, half), *replayed]
        balance = self.rho * (task.classes.sum() / task.old.sum().clamp(min=1))
        among_new = (~task.old).view(1, 1, -1)
        # CE(among new) + balance * (CE - CE(among new))
        return [
            Term(step.stream, half * balance),
            Term(step.stream, half * (1 - balance), among_new),
            *replayed,
        ]
