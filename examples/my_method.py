"""A custom method: what it needs of the memory, and its loss."""

from typing import ClassVar

import torch

from remask import Method, Step


class WeightedReplay(Method):
    """loss = CE(stream) + past * CE(replay): how much the past counts is a weight."""

    draws = 1  # independent draws from memory in a step
    weights: ClassVar = {"past": 1.0}
    past: torch.Tensor  # [S], one number per trial: a stack may try several at once

    def loss(self, step: Step) -> torch.Tensor:
        """One entry per trial, [S]; the mask, where a trial has one, acts in stream_loss."""
        loss = step.stream_loss()
        for replay in step.replays:  # none in the very first step
            loss = loss + self.past * step.cross_entropy(replay)
        return loss
