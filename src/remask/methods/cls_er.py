"""CLS-ER: complementary learning systems with experience replay (Arani et al. 2022)."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from remask.methods.er import ER
from remask.methods.slow_copies import follow, put_into, share_of, slow_copy
from remask.methods.step import Batch, Step, Term


class CLSER(ER):
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
    remembers = ("plastic", "stable", "steps")
    predicts_with = ("stable",)
    alpha: Tensor
    plastic_slowness: Tensor
    plastic_rate: Tensor
    stable_slowness: Tensor
    stable_rate: Tensor

    def prepare(self) -> None:
        """Start both copies at the networks' weights."""
        self.plastic, self.stable = slow_copy(self.context.net), slow_copy(self.context.net)
        self.steps = torch.zeros(self.context.trials, device=self.context.device)

    def terms(self, step: Step) -> list[Term]:
        """Add the distance to the better copy's logits on replayed samples."""
        terms = super().terms(step)
        for replay in step.replays:
            terms.append(Term(replay, self.alpha, stored=self._taught(replay)))
        return terms

    def _taught(self, replay: Batch) -> Tensor:
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
            follow(copy, self.context.net, share_of(self.steps, slowness) * (chance < rate))

    def scores(self, inputs: Tensor, task: int) -> Tensor:
        """Return the scores of the stable copy."""
        return self.own_scores(inputs.expand(self.context.trials, *inputs.shape), task)

    def own_scores(self, inputs: Tensor, task: int) -> Tensor:
        """Return the scores of inputs that differ by trial."""
        return self.context.net.evaluate(inputs, self.stable)

    @classmethod
    def predictor(cls, net: nn.Module, own: Mapping[str, Tensor]) -> nn.Module:
        """Return the net with the weights of the stable copy."""
        return put_into(net, own, "stable")
