"""iCaRL: incremental classifier and representation learning (Rebuffi et al. 2017)."""

from abc import abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from remask.data.tasks import Task
from remask.memory import KeptRows, herd
from remask.methods.base import Method
from remask.methods.penalties import squared_norm
from remask.methods.step import Step
from remask.nets.stacked import State

_AT_ONCE = 512


class ClassMemory(Method):
    """Keeps equally many samples of every class, and a copy of the network before the task."""

    least_per = "class"
    teacher: State
    memory: KeptRows

    def prepare(self) -> None:
        context = self.context
        self.memory = context.keeps(context.capacity, groups=context.num_classes)
        self.teacher = {n: t.detach().clone() for n, t in context.net.state().items()}

    @torch.no_grad()
    def end_task(self, task: Task) -> None:
        for name, tensor in self.context.net.state().items():
            self.teacher[name].copy_(tensor)
        quota = self.context.capacity // len(task.seen_labels)
        self.memory.trim(quota, without=task.own_labels)
        labels = self.context.labels_of(task.rows)
        for label in task.own_labels:
            self.memory.put(self.choose(task.rows[labels == label], quota), label)

    @abstractmethod
    def choose(self, rows: Tensor, quota: int) -> Tensor:
        """Choose min(quota, n) of the rows of a class, int64 [n]: [S, min(quota, n)]."""


class ICaRL(ClassMemory):
    """loss = mean BCE(f(x), old outputs for old classes, one-hot for new ones) + decay * |theta|^2.

    Exemplars, chosen by herding, are part of each epoch. The prediction is the class whose
    exemplars' mean features are nearest.
    """

    name = "icarl"
    title = "iCaRL"
    weights: ClassVar = {"decay": 0.0}
    own_memory = "whole"
    confidence = False
    unmaskable = "iCaRL's outputs are sigmoids, so classes do not compete"
    remembers = ("teacher", "means", "seen")
    predicts_with = ("means", "seen")
    decay: Tensor

    def prepare(self) -> None:
        super().prepare()
        context = self.context
        blank = torch.zeros((context.trials, 1, *context.input_shape), device=context.device)
        size = context.net.features(blank, training=False).shape[2]
        shape = (context.trials, context.num_classes)
        self.means = torch.zeros((*shape, size), device=context.device)
        self.seen = torch.zeros(shape, dtype=torch.bool, device=context.device)

    def extra_samples(self, task: Task) -> int:
        old = list(task.old_labels)
        if not old:
            return 0
        quota = self.context.capacity // len(old)
        return int(self.context.class_sizes[old].clamp(max=quota).sum())

    def extra_rows(self, task: Task) -> Tensor:
        return torch.cat([self.memory.group(label) for label in task.old_labels], dim=1)

    def loss(self, step: Step) -> Tensor:
        """Return the BCE to the previous network's outputs (old classes) and the labels (new)."""
        logits = step.stream.logits
        wanted = F.one_hot(step.stream.labels, logits.shape[2]).to(logits.dtype)
        if step.task.number:
            before = _sigmoid(self.context.net.evaluate(step.stream.inputs, self.teacher))
            wanted = torch.where(step.task.old, before, wanted)
        each = _cross_entropy(logits, wanted)
        loss = each[..., step.task.seen_columns].mean((1, 2))
        return loss + self.decay * squared_norm(self.context.net.parameters)

    @torch.no_grad()
    def end_task(self, task: Task) -> None:
        super().end_task(task)
        for label in task.seen_labels:
            self.means[:, label] = self._features(self.memory.group(label)).mean(1)
        self.seen.copy_(task.seen)

    def choose(self, rows: Tensor, quota: int) -> Tensor:
        return rows[herd(self._features(rows.expand(self.context.trials, -1)), quota)]

    def scores(self, inputs: Tensor, task: int) -> Tensor:
        shared = inputs.expand(self.context.trials, *inputs.shape)
        features = self.context.net.features(shared, training=False)
        distances = torch.cdist(features, self.means).square()
        return (-distances).masked_fill(~self.seen.unsqueeze(1), -torch.inf)

    @classmethod
    def predictor(cls, net: nn.Module, own: Mapping[str, Tensor]) -> nn.Module:
        return NearestMean(net, own["means"], own["seen"])

    def _features(self, rows: Tensor) -> Tensor:
        """Return the features of samples by row number: int64 [S, n] -> [S, n, F]."""
        context = self.context
        parts = [context.batch(part, augment=False) for part in torch.split(rows, _AT_ONCE, dim=1)]
        return torch.cat([context.net.features(p.inputs, training=False) for p in parts], dim=1)


class NearestMean(nn.Module):
    """Scores a class by how near its mean features are; the highest score wins.

    The features are what the net's last linear layer sees. Classes not seen yet score -inf.
    """

    means: Tensor
    seen: Tensor

    def __init__(self, net: nn.Module, means: Tensor, seen: Tensor) -> None:
        """`means` is [K, F], `seen` bool [K]."""
        super().__init__()
        self.net = net
        self.register_buffer("means", means)
        self.register_buffer("seen", seen)

    def forward(self, inputs: Tensor) -> Tensor:
        """Scores: [B, *shape] -> [B, K]."""
        # torch.cdist would do, but cannot be exported for batches of any size.
        distances = (self._features(inputs).unsqueeze(1) - self.means).square().sum(-1)
        return (-distances).masked_fill(~self.seen, -torch.inf)

    def _features(self, inputs: Tensor) -> Tensor:
        caught: list[Tensor] = []
        hooks = [
            layer.register_forward_pre_hook(lambda _, given: caught.append(given[0]))
            for layer in self.net.modules()
            if isinstance(layer, nn.Linear)
        ]
        try:
            self.net(inputs)
        finally:
            for hook in hooks:
                hook.remove()
        return caught[-1]


# Trial by trial: vectorised loops may round the last elements of a tensor differently, and which
# ones are last depends on the number of trials.
def _sigmoid(logits: Tensor) -> Tensor:
    return torch.stack([own.sigmoid() for own in logits])


def _cross_entropy(logits: Tensor, wanted: Tensor) -> Tensor:
    """Return the binary cross-entropy of every output, [S, B, K]."""
    each = partial(F.binary_cross_entropy_with_logits, reduction="none")
    return torch.stack([each(own, truth) for own, truth in zip(logits, wanted, strict=True)])


class DarkICaRL(ICaRL):
    """iCaRL with a bug of the implementation behind the published figures on MNIST.

    It truncated the exemplars' pixels to integers, which turns all but the brightest black.
    """

    name = "icarl-dark"
    title = "iCaRL with dark exemplars"

    def loss(self, step: Step) -> Tensor:
        """Return iCaRL's loss with truncated exemplars."""
        inputs, labels = step.stream.inputs, step.stream.labels
        exemplar = step.task.old[labels].view(*labels.shape, *[1] * (inputs.ndim - 2))
        step.stream.inputs = torch.where(exemplar, inputs.floor(), inputs)
        return super().loss(step)
