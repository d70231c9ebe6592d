"""LwF: learning without forgetting (Li and Hoiem 2017)."""

from typing import ClassVar

import torch
from torch import Tensor

from remask.data.tasks import Task
from remask.losses import trial_cross_entropy
from remask.methods.base import Method
from remask.methods.penalties import squared_norm
from remask.methods.step import Step

_TEMPERATURE = 2.0
_AT_ONCE = 512


class LwF(Method):
    """loss = CE(stream, among seen classes) + alpha * D + decay * |theta|^2.

    D is the cross-entropy between the network's outputs before the task and now, among old classes,
    at temperature 2. Before a task, the last layer alone is trained on it as a warm-up.
    """

    name = "lwf"
    title = "LwF"
    weights: ClassVar = {"alpha": 1.0, "decay": 0.0005}
    remembers = ("recorded",)
    alpha: Tensor
    decay: Tensor

    def prepare(self) -> None:
        context = self.context
        shape = (context.trials, context.largest_task, context.num_classes)
        self.recorded = torch.zeros(shape, device=context.device)

    def begin_task(self, task: Task) -> None:
        """Warm up the head, then record the logits of every sample."""
        if task.number == 0:
            return
        context = self.context
        if len(task.rows) > self.recorded.shape[1]:  # the size was unknown
            self.recorded.resize_(context.trials, len(task.rows), context.num_classes)
        for _ in range(context.epochs):
            for rows in context.shuffled(task, "warm-up"):
                batch = context.batch(rows)
                logits = context.net.head(context.net.features(batch.inputs, training=False))
                loss = trial_cross_entropy(logits, batch.labels, task.classes, None)
                context.net.descend(loss, context.lr)
        start = 0
        for rows in torch.split(task.rows, _AT_ONCE):
            batch = context.batch(rows.expand(context.trials, -1), augment=False)
            self.recorded[:, start : start + len(rows)] = context.net.evaluate(batch.inputs)
            start += len(rows)

    def loss(self, step: Step) -> Tensor:
        loss = step.stream_loss(among=step.task.seen)
        self.context.note("stream", loss)
        loss = loss + self.decay * squared_norm(self.context.net.parameters)
        if step.task.number == 0:
            return loss
        old = step.task.old_columns
        trials = torch.arange(len(step.rows), device=step.rows.device).unsqueeze(1)
        before = self.recorded[trials, torch.searchsorted(step.task.rows, step.rows.contiguous())]
        wanted = (before[..., old] / _TEMPERATURE).softmax(2)
        current = (step.stream.logits[..., old] / _TEMPERATURE).log_softmax(2)
        distillation = self.alpha * -(wanted * current).sum(2).mean(1)
        self.context.note("distillation", distillation)
        return loss + distillation
