"""LwF: learning without forgetting (Li and Hoiem 2017)."""

from typing import ClassVar

import torch
from torch import Tensor

from remask.losses import trial_cross_entropy
from remask.methods.base import Method
from remask.methods.penalties import squared_norm
from remask.methods.step import Step
from remask.streams import Task

_TEMPERATURE = 2.0
_AT_ONCE = 512


class LwF(Method):
    """loss = CE(stream, among seen classes) + alpha * D + decay * |theta|^2.

    D is the cross-entropy between what the network said of the samples before the task and what it
    says now, among old classes, at temperature 2. Before a task, its classes' outputs are warmed
    up: one more training of the task, of the last layer alone.
    """

    name = "lwf"
    title = "LwF"
    weights: ClassVar = {"alpha": 1.0, "decay": 0.0005}
    remembers = ("recorded",)
    alpha: Tensor
    decay: Tensor

    def prepare(self) -> None:
        """Make room for the answers of the largest task, if it is known."""
        engine = self.engine
        shape = (engine.trials, engine.largest_task, engine.num_classes)
        self.recorded = torch.zeros(shape, device=engine.device)

    def begin_task(self, task: Task) -> None:
        """Warm up the head, then record what the network says of every sample."""
        if task.number == 0:
            return
        engine = self.engine
        if len(task.rows) > self.recorded.shape[1]:  # nobody knew how large it would be
            self.recorded.resize_(engine.trials, len(task.rows), engine.num_classes)
        for _ in range(engine.epochs):
            for rows in engine.shuffled(task, "warm-up"):
                batch = engine.batch(rows)
                logits = engine.net.head(engine.net.features(batch.inputs, training=False))
                loss = trial_cross_entropy(logits, batch.labels, task.classes, None)
                engine.net.descend(loss, engine.lr)
        start = 0
        for rows in torch.split(task.rows, _AT_ONCE):
            batch = engine.batch(rows.expand(engine.trials, -1), augment=False)
            self.recorded[:, start : start + len(rows)] = engine.net.evaluate(batch.inputs)
            start += len(rows)

    def loss(self, step: Step) -> Tensor:
        """Learn the new, and say the same as before of the old."""
        loss = step.stream_loss(among=step.task.seen)
        self.engine.note("stream", loss)
        loss = loss + self.decay * squared_norm(self.engine.net.parameters)
        if step.task.number == 0:
            return loss
        old = step.task.old_columns
        trials = torch.arange(len(step.rows), device=step.rows.device).unsqueeze(1)
        before = self.recorded[trials, torch.searchsorted(step.task.rows, step.rows.contiguous())]
        wanted = (before[..., old] / _TEMPERATURE).softmax(2)
        said = (step.stream.logits[..., old] / _TEMPERATURE).log_softmax(2)
        distillation = self.alpha * -(wanted * said).sum(2).mean(1)
        self.engine.note("distillation", distillation)
        return loss + distillation
