"""FDR: function distance regularisation (Benjamin et al. 2019)."""

import torch

from remask.memory import KeptRows
from remask.methods.base import Method
from remask.methods.step import Step, Term
from remask.streams import Task


class FDR(Method):
    """Two steps of descent: on CE(stream), then on the mean |softmax(f(x)) - softmax(stored)|.

    The norm is the Euclidean one, not squared, on a draw from memory. At the end of a task every
    task so far has as many places.
    """

    name = "fdr"
    title = "FDR"
    own_memory = "drawn"
    remembers = ("logits",)
    memory: KeptRows

    @classmethod
    def least_buffer(cls, num_tasks: int, num_classes: int) -> int:
        """Every task has a place."""
        return num_tasks

    def prepare(self) -> None:
        """The memory is empty."""
        engine = self.engine
        most_tasks = engine.announced_tasks or engine.capacity
        self.memory = engine.keeps(engine.capacity, groups=most_tasks)
        shape = (engine.trials, engine.capacity, engine.num_classes)
        self.logits = torch.zeros(shape, device=engine.device)

    def terms(self, step: Step) -> list[Term]:
        """The cross-entropy."""
        return step.stream_terms()

    def after_step(self, step: Step) -> None:
        """Descend once more, on what the memory says."""
        filled = self.memory.filled
        if not filled:
            return
        slots = self.engine.draw(filled, self.engine.replay_batch)
        recalled = self.engine.batch(self.memory.at(slots))
        places = slots.unsqueeze(2).expand(-1, -1, self.engine.num_classes)
        stored = self.logits.gather(1, places).softmax(2)
        distance = torch.linalg.vector_norm(recalled.logits.softmax(2) - stored, dim=2)
        self.engine.net.descend(distance.mean(1), self.engine.lr)

    @torch.no_grad()
    def end_task(self, task: Task) -> None:
        """Make room in every earlier task, and keep the first samples of another pass."""
        quota = self.engine.capacity // (task.number + 1)
        left = self.memory.trim(quota)
        self.logits[:, : len(left)] = self.logits[:, left]
        room = min(quota, len(task.rows))
        for rows in self.engine.shuffled(task, "memory"):
            if not room:
                break
            kept = self.engine.batch(rows).logits[:, :room]
            start, count = self.memory.filled, kept.shape[1]
            self.memory.put(rows[:, :count], task.number)
            self.logits[:, start : start + count] = kept
            room -= count
