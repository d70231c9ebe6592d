"""SS-IL: separated softmax for incremental learning (Ahn et al. 2021)."""

from typing import ClassVar

import torch
from torch import Tensor

from remask.data.tasks import Task
from remask.memory import choose_rows
from remask.methods.icarl import ClassMemory
from remask.methods.step import Step

_TEMPERATURE = 2.0


class SSIL(ClassMemory):
    """loss = CE(stream, among the task's classes) + CE(replay, among old ones) + distillation * D.

    The two cross-entropies are averaged over all samples, or summed under the online protocol. D is
    the sum over past tasks of 4 KL(outputs before this task || current ones), among the classes of
    that task at temperature 2, over stream and replay. The memory holds samples of old classes.
    """

    name = "ss_il"
    title = "SS-IL"
    weights: ClassVar = {"distillation": 1.0}
    own_memory = "drawn"
    unmaskable = "SS-IL itself separates the classes of stream and replay"
    remembers = ("teacher", "task_of")
    distillation: Tensor

    def prepare(self) -> None:
        super().prepare()
        shape = (self.context.trials, self.context.num_classes)
        self.task_of = torch.zeros(shape, dtype=torch.int64, device=self.context.device)

    def begin_task(self, task: Task) -> None:
        self.task_of[:, task.classes] = task.number

    def loss(self, step: Step) -> Tensor:
        """Return the loss; in the first task, that of the stream."""
        context, task, stream = self.context, step.task, step.stream
        loss = step.cross_entropy(stream, among=task.classes)
        if not self.memory.filled:
            return loss
        slots = context.draw(self.memory.filled, context.replay_batch)
        replay = context.batch(self.memory.at(slots))
        old_loss = step.cross_entropy(replay, among=task.old)
        sizes = stream.labels.shape[1], replay.labels.shape[1]
        own, old = (1, 1) if context.sums_batches else (size / sum(sizes) for size in sizes)
        inputs = torch.cat([stream.inputs, replay.inputs], dim=1)
        before = context.net.evaluate(inputs, self.teacher) / _TEMPERATURE
        now = torch.cat([stream.logits, replay.logits], dim=1) / _TEMPERATURE
        divergences = [
            _divergence(before, now, (self.task_of == number).unsqueeze(1) & task.old)
            for number in range(task.number)
        ]
        distance = _TEMPERATURE**2 * torch.stack(divergences).sum(0)
        return own * loss + old * old_loss + self.distillation * distance

    def choose(self, rows: Tensor, quota: int) -> Tensor:
        return choose_rows(self.context.generators("memory"), rows, quota)


def _divergence(before: Tensor, now: Tensor, among: Tensor) -> Tensor:
    """The mean KL(softmax(before) || softmax(now)) of samples among some classes: [S]."""
    wanted, current = (
        logits.masked_fill(~among, -torch.inf).log_softmax(2).masked_fill(~among, 0)
        for logits in (before, now)
    )
    return (wanted.exp() * among * (wanted - current)).sum(2).mean(1)
