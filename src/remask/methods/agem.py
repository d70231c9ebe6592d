"""A-GEM: averaged gradient episodic memory (Chaudhry et al. 2019)."""

import torch

from remask.data.tasks import Task
from remask.memory import KeptRows, choose_rows
from remask.methods.base import Method
from remask.methods.step import Step, Term
from remask.nets.stacked import Gradients, LossGradients


class AGEM(Method):
    """g <- g - min(0, <g, r>) / <r, r> * r, where r is the gradient of CE on a draw from memory.

    The memory holds floor(buffer / tasks) samples per task, chosen when the task ends.
    """

    name = "agem"
    title = "A-GEM"
    own_memory = "drawn"
    needs_task_count = "divides its memory among all tasks"
    memory: KeptRows

    @classmethod
    def least_buffer(cls, num_tasks: int, num_classes: int) -> int:
        """One sample per task."""
        return num_tasks

    def prepare(self) -> None:
        """Start with an empty memory."""
        tasks = self.context.num_tasks
        self.quota = self.context.capacity // tasks
        self.memory = self.context.keeps(self.quota * tasks, names=("rows", "filled"))

    def terms(self, step: Step) -> list[Term]:
        """Return the cross-entropy on the stream."""
        return step.stream_terms()

    def adjust_gradients(self, step: Step, gradients: LossGradients) -> Gradients:
        """Remove the component that opposes the memory's gradient."""
        filled = self.memory.filled
        if not filled:
            return gradients
        slots = self.context.draw(filled, self.context.replay_batch)
        (reference,) = self.context.gradients(self.memory.at(slots), [slots.shape[1]])
        against = gradients.inner(reference).clamp(max=0)
        length = reference.inner(reference).clamp(min=torch.finfo(against.dtype).tiny)
        gradients.add(reference, -against / length)
        return gradients

    def end_task(self, task: Task) -> None:
        """Keep a random sample of the task."""
        self.memory.put(choose_rows(self.context.generators("memory"), task.rows, self.quota))
