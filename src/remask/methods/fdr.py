"""FDR: function distance regularisation (Benjamin et al. 2019)."""

import torch

from remask.data.tasks import Task
from remask.memory import KeptRows
from remask.methods.sgd import SGD
from remask.methods.step import Step


class FDR(SGD):
    """Two gradient steps: on CE(stream), then on the mean |softmax(f(x)) - softmax(stored)|_2.

    The second is on a draw from memory. After a task, all tasks so far share the memory equally.
    """

    name = "fdr"
    title = "FDR"
    own_memory = "drawn"
    least_per = "task"
    remembers = ("logits",)
    memory: KeptRows

    def prepare(self) -> None:
        context = self.context
        most_tasks = context.announced_tasks or context.capacity
        self.memory = context.keeps(context.capacity, groups=most_tasks)
        shape = (context.trials, context.capacity, context.num_classes)
        self.logits = torch.zeros(shape, device=context.device)

    def after_step(self, step: Step) -> None:
        """Take the second step, on a draw from memory."""
        filled = self.memory.filled
        if not filled:
            return
        slots = self.context.draw(filled, self.context.replay_batch)
        recalled = self.context.batch(self.memory.at(slots))
        places = slots.unsqueeze(2).expand(-1, -1, self.context.num_classes)
        stored = self.logits.gather(1, places).softmax(2)
        distance = torch.linalg.vector_norm(recalled.logits.softmax(2) - stored, dim=2)
        distillation = distance.mean(1)
        self.context.note("distillation", distillation)
        self.context.net.descend(distillation, self.context.lr)

    @torch.no_grad()
    def end_task(self, task: Task) -> None:
        quota = self.context.capacity // (task.number + 1)
        left = self.memory.trim(quota)
        self.logits[:, : len(left)] = self.logits[:, left]
        room = min(quota, len(task.rows))
        for rows in self.context.shuffled(task, "memory"):
            if not room:
                break
            kept = self.context.batch(rows).logits[:, :room]
            start, count = self.memory.filled, kept.shape[1]
            self.memory.put(rows[:, :count], task.number)
            self.logits[:, start : start + count] = kept
            room -= count
