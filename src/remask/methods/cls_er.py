"""CLS-ER: complementary learning systems with experience replay (Arani et al. 2022)."""

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from remask.methods.slow_copies import SlowCopies, follow
from remask.methods.step import Batch, Step
from remask.nets.stacked import State


class CLSER(SlowCopies):
    """loss = ER's + alpha * MSE(f(replay), the better of f_plastic(replay) and f_stable(replay)).

    The better one, per sample, gives the true class the higher probability. After a step each slow
    copy is updated with probability `rate`: slow <- a * slow + (1 - a) * theta, with
    a = min(1 - 1 / (step + 1), slowness). The stable copy predicts.
    """

    name = "cls_er"
    title = "CLS-ER"
    weights: ClassVar = {
        "alpha": 2.0,
        "plastic_slowness": 0.99,
        "plastic_rate": 1.0,
        "stable_slowness": 0.99,
        "stable_rate": 0.9,
    }
    copies = ("plastic", "stable")
    remembers = ("plastic", "stable", "steps")
    predicts_with = ("stable",)
    plastic: State
    stable: State
    plastic_slowness: Tensor
    plastic_rate: Tensor
    stable_slowness: Tensor
    stable_rate: Tensor

    def taught(self, replay: Batch) -> Tensor:
        """Return the logits of the better copy, per sample."""
        plastic, stable = (
            self.context.net.teach(replay.inputs, copy) for copy in (self.plastic, self.stable)
        )
        truth = replay.labels.unsqueeze(2)
        trusted = [logits.log_softmax(2).gather(2, truth) for logits in (plastic, stable)]
        return torch.where(trusted[1] > trusted[0], stable, plastic)

    def after_step(self, step: Step) -> None:
        """Update each copy with its own probability."""
        self.steps += 1
        drawn = np.stack([random.random(2) for random in self.context.generators("update")])
        chances = torch.from_numpy(drawn).to(self.steps)
        for copy, slowness, rate, chance in (
            (self.plastic, self.plastic_slowness, self.plastic_rate, chances[:, 0]),
            (self.stable, self.stable_slowness, self.stable_rate, chances[:, 1]),
        ):
            follow(copy, self.context.net, self.share(slowness) * (chance < rate))
