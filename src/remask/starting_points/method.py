"""A custom method: its memory and its loss.

remask check starting_point:StartingPoint
remask run --method starting_point:StartingPoint --weight past=0.5,1 --mask none,-1
"""

from typing import ClassVar

from torch import Tensor

from remask import Method, Step


class StartingPoint(Method):
    """loss = CE(stream) + past * CE(replay)."""

    # The name in tables; by default the name of the class.
    title = "StartingPoint"

    # The number of independent draws from the memory per step. With 0, the method has no memory.
    draws = 1

    # Its own weights with their defaults; `--weight past=2` changes one. Each is an attribute [S],
    # one number per trial of a stack.
    weights: ClassVar = {"past": 1.0}
    past: Tensor

    # The names of attributes that change during training: tensors [S, ...] made in `prepare`.
    # Attributes that are not named here are lost when a run is stopped.
    remembers = ()

    def loss(self, step: Step) -> Tensor:
        """One entry per trial, [S]; no sum or mean may cross trials."""
        # The cross-entropy of the new samples, masked if the trial has a mask.
        loss = step.stream_loss()
        for replay in step.replays:  # none in the first step, when the memory is empty
            loss = loss + self.past * step.cross_entropy(replay)
        return loss

    # Other hooks, if a loss is not enough (docs/your-own.md): prepare, begin_task, end_task,
    # begin_step, adjust_gradients, after_step, scores.
