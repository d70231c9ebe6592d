"""Slow copies of the networks: moving averages of their weights, which teach and predict."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

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
        """Start all copies at the networks' weights."""
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
        """Return the scores of the last copy."""
        return self.own_scores(inputs.expand(self.context.trials, *inputs.shape), task)

    def own_scores(self, inputs: Tensor, task: int) -> Tensor:
        """Return the scores of inputs that differ by trial."""
        return self.context.net.evaluate(inputs, getattr(self, self.copies[-1]))

    @classmethod
    @torch.no_grad()
    def predictor(cls, net: nn.Module, own: Mapping[str, Tensor]) -> nn.Module:
        """Return the net with the weights of the last copy."""
        for name, place in (*net.named_parameters(), *net.named_buffers()):
            place.copy_(own[f"{cls.copies[-1]}/{name}"])
        return net
