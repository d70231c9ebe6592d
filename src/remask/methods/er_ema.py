"""ER-EMA: experience replay taught by a slow copy of the network. With a mask: MSER-EMA."""

from typing import ClassVar

from torch import Tensor

from remask.methods.slow_copies import SlowCopies, follow
from remask.methods.step import Batch, Step
from remask.nets.stacked import State


class EREMA(SlowCopies):
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
    slow_copy = "slow"
    copies = ("slow",)
    remembers = ("slow", "steps")
    predicts_with = ("slow",)
    slow: State
    slowness: Tensor
    ramp: Tensor

    def taught(self, replay: Batch) -> Tensor:
        """Return the slow copy's logits."""
        return replay.taught(self.context.net, self.slow)

    def following(self) -> Tensor:
        """Return the share of the networks in the next slow copy, [S]."""
        return self.share(self.slowness, self.ramp)

    def after_step(self, step: Step) -> None:
        """Update the copy."""
        self.steps += 1
        follow(self.slow, self.context.net, self.following())
