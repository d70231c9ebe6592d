"""ER-EMA: experience replay taught by a slow copy of the network. With a mask: MSER-EMA."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from remask.methods.er import ER
from remask.methods.slow_copies import follow, put_into, share_of, slow_copy
from remask.methods.step import Step, Term


class EREMA(ER):
    """loss = ER's + alpha * MSE(f(replay), f_slow(replay)); f_slow predicts.

    After each step slow <- a * slow + (1 - a) * theta, with a = min(1 - (1 + ramp) / (step + 1 +
    ramp), slowness): an exponential moving average (EMA) of the weights, at first over the latest
    1 / (1 + ramp) of all steps. No logits are stored.
    """

    name = "er_ema"
    title = "ER-EMA"
    weights: ClassVar = {"alpha": 0.5, "slowness": 0.995, "ramp": 9.0}
    usual_mask = 0.0
    usual_fade = 4.0
    remembers = ("slow", "steps")
    predicts_with = ("slow",)
    alpha: Tensor
    slowness: Tensor
    ramp: Tensor

    def prepare(self) -> None:
        """Start the copy at the networks' weights."""
        self.slow = slow_copy(self.context.net)
        self.steps = torch.zeros(self.context.trials, device=self.context.device)

    def terms(self, step: Step) -> list[Term]:
        """Add the distance to the slow copy's current logits on replayed samples."""
        terms = super().terms(step)
        for replay in step.replays:
            taught = self.context.net.teach(replay.inputs, self.slow)
            terms.append(Term(replay, self.alpha, stored=taught))
        return terms

    def after_step(self, step: Step) -> None:
        """Update the copy."""
        self.steps += 1
        follow(self.slow, self.context.net, share_of(self.steps, self.slowness, self.ramp))

    def scores(self, inputs: Tensor, task: int) -> Tensor:
        """Return the scores of the slow copy."""
        return self.own_scores(inputs.expand(self.context.trials, *inputs.shape), task)

    def own_scores(self, inputs: Tensor, task: int) -> Tensor:
        """Return the scores of inputs that differ by trial."""
        return self.context.net.evaluate(inputs, self.slow)

    @classmethod
    def predictor(cls, net: nn.Module, own: Mapping[str, Tensor]) -> nn.Module:
        """Return the net with the weights of the slow copy."""
        return put_into(net, own, "slow")
