"""ER-EMA, CLS-ER: slow copies of the networks, averages of their weights, teach and predict."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from remask.methods.er import ER
from remask.methods.step import Batch, Step, Term
from remask.nets.stacked import StackedNet, State, per_trial


@torch.no_grad()
def follow(slow: State, net: StackedNet, share: Tensor) -> None:
    """Move a copy towards the networks: slow <- (1 - share) * slow + share * net, share [S].

    The copy's statistics are its own, those of the batches that it has taught.
    """
    for name, tensor in net.state().items():
        if name in net.statistics:
            continue
        if tensor.is_floating_point():
            slow[name].add_((tensor - slow[name]).mul_(per_trial(share, tensor)))
        else:
            slow[name].copy_(tensor)


class SlowCopies(ER):
    """loss = ER's + alpha * MSE(f(replay), the logits of a slow copy). The last copy predicts."""

    copies: ClassVar[tuple[str, ...]]
    """The attributes with the copies."""
    alpha: Tensor

    def prepare(self) -> None:
        for name in self.copies:
            state = self.context.net.state().items()
            setattr(self, name, {own: tensor.detach().clone() for own, tensor in state})
        self.steps = torch.zeros(self.context.trials, device=self.context.device)

    def terms(self, step: Step) -> list[Term]:
        """Add the distance to a slow copy's current logits on replayed samples."""
        taught = [Term(own, self.alpha, stored=self.taught(own)) for own in step.replays]
        return super().terms(step) + taught

    @abstractmethod
    def taught(self, replay: Batch) -> Tensor:
        """Return the logits [S, R, K] that replayed samples should have."""

    def share(self, slowness: Tensor, ramp: Tensor | float = 0.0) -> Tensor:
        """Return 1 - a with a = min(1 - (1 + ramp) / (steps + 1 + ramp), slowness), [S].

        Until `slowness` limits it, a copy averages over about the latest 1 / (1 + ramp) of all
        steps so far; with ramp = 0 over all of them equally. It forgets its random beginning.
        """
        return torch.maximum((1 + ramp) / (self.steps + 1 + ramp), 1 - slowness)

    def scores(self, inputs: Tensor, task: int) -> Tensor:
        return self.own_scores(inputs.expand(self.context.trials, *inputs.shape), task)

    def own_scores(self, inputs: Tensor, task: int) -> Tensor:
        return self.context.net.evaluate(inputs, getattr(self, self.copies[-1]))

    @classmethod
    @torch.no_grad()
    def predictor(cls, net: nn.Module, own: Mapping[str, Tensor]) -> nn.Module:
        for name, place in (*net.named_parameters(), *net.named_buffers()):
            place.copy_(own[f"{cls.copies[-1]}/{name}"])
        return net


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
        return replay.taught(self.context.net, self.slow)

    def following(self) -> Tensor:
        """Return the share of the networks in the next slow copy, [S]."""
        return self.share(self.slowness, self.ramp)

    def after_step(self, step: Step) -> None:
        self.steps += 1
        follow(self.slow, self.context.net, self.following())


class CLSER(SlowCopies):
    """loss = ER's + alpha * MSE(f(replay), the better of f_plastic(replay) and f_stable(replay)).

    The better one, per sample, gives the true class the higher probability. After a step each slow
    copy is updated with probability `rate`: slow <- a * slow + (1 - a) * theta, with
    a = min(1 - 1 / (step + 1), slowness). The stable copy predicts. (Arani et al. 2022)
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
        self.steps += 1
        drawn = np.stack([random.random(2) for random in self.context.generators("update")])
        chances = torch.from_numpy(drawn).to(self.steps)
        for copy, slowness, rate, chance in (
            (self.plastic, self.plastic_slowness, self.plastic_rate, chances[:, 0]),
            (self.stable, self.stable_slowness, self.stable_rate, chances[:, 1]),
        ):
            follow(copy, self.context.net, self.share(slowness) * (chance < rate))
