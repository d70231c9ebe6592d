"""iCaRL: incremental classifier and representation learning (Rebuffi et al. 2017)."""

from collections.abc import Mapping
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from remask.memory import KeptRows, herd
from remask.methods.base import Method
from remask.methods.penalties import squared_norm
from remask.methods.step import Step
from remask.nets import NearestMean, State
from remask.streams import Task

_AT_ONCE = 512


class ICaRL(Method):
    """loss = mean BCE(f(x), old outputs for old classes, one-hot for new ones) + decay * |theta|^2.

    The exemplars, chosen by herding, are learnt beside each task. A sample is of the class whose
    exemplars' mean features are nearest.
    """

    name = "icarl"
    title = "iCaRL"
    weights: ClassVar = {"decay": 0.0}
    own_memory = "whole"
    confidence = False
    unmaskable = "iCaRL's outputs are sigmoids, so no class pushes another down"
    remembers = ("teacher", "means", "seen")
    predicts_with = ("means", "seen")
    decay: Tensor
    memory: KeptRows

    @classmethod
    def least_buffer(cls, num_tasks: int, num_classes: int) -> int:
        """Every class has an exemplar."""
        return num_classes

    def prepare(self) -> None:
        """The memory is empty."""
        engine = self.engine
        known = int(engine.class_sizes.max())  # 0 if no class has come yet
        most = min(engine.capacity, known) if known else engine.capacity
        self.memory = engine.keeps(
            most, groups=engine.num_classes, apart=True, names=("exemplars", "sizes")
        )
        self.teacher: State = {n: t.detach().clone() for n, t in engine.net.state().items()}
        blank = torch.zeros((engine.trials, 1, *engine.input_shape), device=engine.device)
        features = engine.net.features(blank, training=False)
        self.means = torch.zeros(
            (engine.trials, engine.num_classes, features.shape[2]), device=engine.device
        )
        self.seen = torch.zeros(
            (engine.trials, engine.num_classes), dtype=torch.bool, device=engine.device
        )

    def extra_samples(self, task: Task) -> int:
        """As many exemplars as all earlier classes have."""
        old = list(task.old_labels)
        if not old:
            return 0
        quota = self.engine.capacity // len(old)
        return int(self.engine.class_sizes[old].clamp(max=quota).sum())

    def extra_rows(self, task: Task) -> Tensor:
        """The exemplars of all earlier classes."""
        return torch.cat([self.memory.group(label) for label in task.old_labels], dim=1)

    def loss(self, step: Step) -> Tensor:
        """Old classes as the network of before the task had them, new ones as the labels say."""
        logits = step.stream.logits
        wanted = F.one_hot(step.stream.labels, logits.shape[2]).to(logits.dtype)
        if step.task.number:
            before = _sigmoid(self.engine.net.evaluate(step.stream.inputs, self.teacher))
            wanted = torch.where(step.task.old, before, wanted)
        each = _cross_entropy(logits, wanted)
        loss = each[..., step.task.seen_columns].mean((1, 2))
        return loss + self.decay * squared_norm(self.engine.net.parameters)

    @torch.no_grad()
    def end_task(self, task: Task) -> None:
        """Keep the network and as many exemplars as there is room for."""
        for name, tensor in self.engine.net.state().items():
            self.teacher[name].copy_(tensor)
        quota = self.engine.capacity // len(task.seen_labels)
        self.memory.trim(quota)
        labels = self.engine.labels_of(task.rows)
        for label in task.own_labels:
            rows = task.rows[labels == label]
            chosen = herd(self._features(rows.expand(self.engine.trials, -1)), quota)
            self.memory.empty(label)
            self.memory.put(rows[chosen], label)
        for label in task.seen_labels:
            self.means[:, label] = self._features(self.memory.group(label)).mean(1)
        self.seen.copy_(task.seen)

    def scores(self, inputs: Tensor, task: int) -> Tensor:
        """The nearer a class's mean, the higher its score."""
        shared = inputs.expand(self.engine.trials, *inputs.shape)
        features = self.engine.net.features(shared, training=False)
        distances = torch.cdist(features, self.means).square()
        return (-distances).masked_fill(~self.seen.unsqueeze(1), -torch.inf)

    @classmethod
    def predictor(cls, net: nn.Module, own: Mapping[str, Tensor]) -> nn.Module:
        """By the nearest mean."""
        return NearestMean(net, own["means"], own["seen"])

    def _features(self, rows: Tensor) -> Tensor:
        """What the network makes of samples as they are: int64 [S, n] -> [S, n, F]."""
        parts = [
            self.engine.net.features(self.engine.batch(part, augment=False).inputs, training=False)
            for part in torch.split(rows, _AT_ONCE, dim=1)
        ]
        return torch.cat(parts, dim=1)


# Trial by trial: the last numbers of a tensor may be rounded otherwise than those before them, and
# which are the last depends on how many trials there are.
def _sigmoid(logits: Tensor) -> Tensor:
    return torch.stack([own.sigmoid() for own in logits])


def _cross_entropy(logits: Tensor, wanted: Tensor) -> Tensor:
    """Binary, of every output by itself: [S, B, K]."""
    return torch.stack(
        [
            F.binary_cross_entropy_with_logits(own, truth, reduction="none")
            for own, truth in zip(logits, wanted, strict=True)
        ]
    )


class DarkICaRL(ICaRL):
    """iCaRL as an early version of a published implementation ran it on MNIST.

    There, the pixels of exemplars were cut to whole numbers on their way into training, which turns
    all but the brightest black. It is here because it explains published figures.
    """

    name = "icarl-dark"
    title = "iCaRL with dark exemplars"

    def loss(self, step: Step) -> Tensor:
        """As iCaRL, on what the accident leaves of the exemplars."""
        inputs, labels = step.stream.inputs, step.stream.labels
        exemplar = step.task.old[labels].view(*labels.shape, *[1] * (inputs.ndim - 2))
        step.stream.inputs = torch.where(exemplar, inputs.floor(), inputs)
        return super().loss(step)
