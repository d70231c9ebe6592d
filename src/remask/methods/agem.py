"""A-GEM: averaged gradient episodic memory (Chaudhry et al. 2019)."""

from typing import ClassVar, Literal

import torch

from remask.data.tasks import Task
from remask.memory import KeptRows, choose_rows
from remask.methods.sgd import SGD
from remask.methods.step import Step
from remask.nets.stacked import Gradients, LossGradients


class AGEM(SGD):
    """g <- g - min(0, <g, r>) / <r, r> * r, where r is the gradient of CE on a draw from memory.

    The memory holds floor(buffer / tasks) samples per task, chosen when the task ends.
    """

    name = "agem"
    title = "A-GEM"
    own_memory: ClassVar[Literal["drawn", "whole"]] = "drawn"
    needs_task_count = "divides its memory among all tasks"
    least_per = "task"
    memory: KeptRows

    def prepare(self) -> None:
        """Start with an empty memory."""
        tasks = self.context.num_tasks
        self.quota = self.context.capacity // tasks
        self.memory = self.context.keeps(self.quota * tasks, groups=tasks)

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
        chosen = choose_rows(self.context.generators("memory"), task.rows, self.quota)
        self.memory.put(chosen, task.number)
