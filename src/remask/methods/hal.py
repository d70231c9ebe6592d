"""HAL: hindsight anchor learning (Chaudhry et al. 2021)."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from remask.methods.er import ER
from remask.methods.step import Step
from remask.methods.trialwise import per_trial
from remask.nets import Gradients, LossGradients
from remask.streams import Task

_STEPS_ON_ANCHORS = 100


class HAL(ER):
    """ER, and anchoring * mean (f(anchors; theta - lr g) - f(anchors; theta))^2.

    An anchor of each class of a finished task is an input that the network would forget most: it
    descends CE(theta) - CE(theta after a step on memory) + gamma * |features - mean features|^2.
    """

    name = "hal"
    title = "HAL"
    weights: ClassVar = {"anchoring": 0.1, "beta": 0.5, "gamma": 0.1}
    remembers = ("anchors", "mean_features")
    anchoring: Tensor
    beta: Tensor
    gamma: Tensor

    def prepare(self) -> None:
        """No anchors yet."""
        engine = self.engine
        shape = (engine.trials, engine.num_classes, *engine.input_shape)
        self.anchors = torch.zeros(shape, device=engine.device)
        features = engine.net.features(self.anchors[:, :1], training=False)
        self.mean_features = torch.zeros_like(features[:, 0])

    def adjust_gradients(self, step: Step, gradients: LossGradients) -> Gradients:
        """Add the gradient of what the step alone would change at the anchors."""
        if not step.task.old_labels:
            return gradients
        engine, anchors = self.engine, self.anchors[:, step.task.old_columns]
        gradients.add(engine.net.gradients_of_change(anchors, gradients, engine.lr, self.anchoring))
        return gradients

    @torch.no_grad()
    def after_step(self, step: Step) -> None:
        """Follow the mean of the stream's features."""
        mean = self.engine.net.features(step.stream.inputs, training=True).mean(1)
        beta = self.beta.unsqueeze(1)
        self.mean_features.mul_(beta).add_((1 - beta) * mean)

    def end_task(self, task: Task) -> None:
        """Find the anchors of the task's classes."""
        engine = self.engine
        memory = engine.recall(engine.batch_size)
        loss = F.cross_entropy(memory.logits.transpose(1, 2), memory.labels, reduction="none").mean(
            1
        )
        forgetful = engine.net.moved(engine.net.gradients(loss), engine.lr)
        classes = torch.tensor(task.own_labels, device=engine.device)
        labels = classes.expand(engine.trials, -1)
        start = [
            torch.from_numpy(random.random((len(classes), *engine.input_shape)))
            for random in engine.generators("anchors")
        ]
        anchors = torch.stack(start).float().to(engine.device)
        rates = per_trial(engine.lr, anchors)
        for _ in range(_STEPS_ON_ANCHORS):
            anchors.requires_grad_()
            features = engine.net.features(anchors, training=True)
            kept = engine.net.head(features).transpose(1, 2)
            forgotten = engine.net(anchors, parameters=forgetful).transpose(1, 2)
            away = (features - self.mean_features.unsqueeze(1)).square().sum(2)
            loss = (
                F.cross_entropy(kept, labels, reduction="none")
                - F.cross_entropy(forgotten, labels, reduction="none")
                + self.gamma.unsqueeze(1) * away
            )
            (slope,) = torch.autograd.grad(loss.sum(), anchors)
            anchors = (anchors - rates * slope).detach()
        self.anchors[:, classes] = anchors
        self.mean_features.zero_()
