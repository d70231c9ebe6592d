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

    The better one, sample by sample, is the one that gives the true class the higher probability.
    After a step each slow copy is updated with a probability of its own, `rate`, towards the
    network: slow <- a * slow + (1 - a) * theta, a = min(1 - 1 / (step + 1), slowness). The stable
    copy predicts.
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
        """Both copies begin where the networks do."""
        self.plastic, self.stable = slow_copy(self.engine.net), slow_copy(self.engine.net)
        self.steps = torch.zeros(self.engine.trials, device=self.engine.device)

    def terms(self, step: Step) -> list[Term]:
        """What the better copy says of a replayed sample is what the network has to say."""
        terms = super().terms(step)
        for replay in step.replays:
            terms.append(Term(replay, self.alpha, stored=self._taught(replay)))
        return terms

    def _taught(self, replay: Batch) -> Tensor:
        plastic, stable = (
            self.engine.net.teach(replay.inputs, copy) for copy in (self.plastic, self.stable)
        )
        truth = replay.labels.unsqueeze(2)
        trusted = [said.log_softmax(2).gather(2, truth) for said in (plastic, stable)]
        return torch.where(trusted[1] > trusted[0], stable, plastic)

    def after_step(self, step: Step) -> None:
        """Each copy follows, or waits for another step."""
        self.steps += 1
        drawn = np.stack([random.random(2) for random in self.engine.generators("update")])
        chances = torch.from_numpy(drawn).to(self.steps)
        for copy, slowness, rate, chance in (
            (self.plastic, self.plastic_slowness, self.plastic_rate, chances[:, 0]),
            (self.stable, self.stable_slowness, self.stable_rate, chances[:, 1]),
        ):
            follow(copy, self.engine.net, share_of(self.steps, slowness) * (chance < rate))

    def scores(self, inputs: Tensor, task: int) -> Tensor:
        """The stable copy predicts."""
        return self.own_scores(inputs.expand(self.engine.trials, *inputs.shape), task)

    def own_scores(self, inputs: Tensor, task: int) -> Tensor:
        """The same, of inputs that each trial has for itself."""
        return self.engine.net.evaluate(inputs, self.stable)

    @classmethod
    def predictor(cls, net: nn.Module, own: Mapping[str, Tensor]) -> nn.Module:
        """The net with the weights of the stable copy."""
        return put_into(net, own, "stable")
