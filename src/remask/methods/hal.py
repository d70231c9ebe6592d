"""HAL: hindsight anchor learning (Chaudhry et al. 2021)."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from remask.data.tasks import Task
from remask.methods.er import ER
from remask.methods.step import Step
from remask.nets.stacked import Gradients, LossGradients, per_trial

_STEPS_ON_ANCHORS = 100


class HAL(ER):
    """loss = ER's + anchoring * mean (f(anchors; theta - lr g) - f(anchors; theta))^2.

    After a task, an anchor per class minimises CE(theta) - CE(theta after a step on memory) +
    gamma * |features - mean features|^2: an input that the network is likely to forget.
    """

    name = "hal"
    title = "HAL"
    weights: ClassVar = {"anchoring": 0.1, "beta": 0.5, "gamma": 0.1}
    remembers = ("anchors", "mean_features")
    anchoring: Tensor
    beta: Tensor
    gamma: Tensor

    def prepare(self) -> None:
        context = self.context
        shape = (context.trials, context.num_classes, *context.input_shape)
        self.anchors = torch.zeros(shape, device=context.device)
        features = context.net.features(self.anchors[:, :1], training=False)
        self.mean_features = torch.zeros_like(features[:, 0])

    def adjust_gradients(self, step: Step, gradients: LossGradients) -> Gradients:
        """Add the gradient of the change that the step causes at the anchors."""
        if not step.task.old_labels:
            return gradients
        context, anchors = self.context, self.anchors[:, step.task.old_columns]
        gradients.add(
            context.net.gradients_of_change(anchors, gradients, context.lr, self.anchoring)
        )
        return gradients

    @torch.no_grad()
    def after_step(self, step: Step) -> None:
        """Update the moving average of the stream's features."""
        mean = self.context.net.features(step.stream.inputs, training=True).mean(1)
        beta = self.beta.unsqueeze(1)
        self.mean_features.mul_(beta).add_((1 - beta) * mean)

    def end_task(self, task: Task) -> None:
        """Compute the anchors of the task's classes."""
        context = self.context
        memory = context.recall(context.batch_size)
        loss = F.cross_entropy(memory.logits.transpose(1, 2), memory.labels, reduction="none").mean(
            1
        )
        forgetful = context.net.moved(context.net.gradients(loss), context.lr)
        classes = torch.tensor(task.own_labels, device=context.device)
        labels = classes.expand(context.trials, -1)
        start = [
            torch.from_numpy(random.random((len(classes), *context.input_shape)))
            for random in context.generators("anchors")
        ]
        anchors = torch.stack(start).float().to(context.device)
        rates = per_trial(context.lr, anchors)
        for _ in range(_STEPS_ON_ANCHORS):
            anchors.requires_grad_()
            features = context.net.features(anchors, training=True)
            kept = context.net.head(features).transpose(1, 2)
            forgotten = context.net(anchors, parameters=forgetful).transpose(1, 2)
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
