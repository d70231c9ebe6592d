"""A custom method: what it needs of the memory, and its loss.

remask check starting_point:StartingPoint
remask run --method starting_point:StartingPoint --weight past=0.5,1 --mask none,-1
"""

from typing import ClassVar

from torch import Tensor

from remask import Method, Step


class StartingPoint(Method):
    """loss = CE(stream) + past * CE(replay)."""

    # What tables call it; without a title, the name of the class.
    title = "StartingPoint"

    # How many independent draws from the memory a step gets. With 0, and nothing else that needs
    # a memory, the method has none.
    draws = 1

    # What only this method has, with the usual values: --weight past=2. Each is an attribute [S],
    # one number per trial of a stack.
    weights: ClassVar = {"past": 1.0}
    past: Tensor

    # Attributes that change from step to step are tensors [S, ...], made in `prepare` and named
    # here. What is not named is lost when a run is stopped.
    remembers = ()

    def loss(self, step: Step) -> Tensor:
        """One entry per trial, [S]; no sum or mean may cross trials."""
        # The cross-entropy of the new samples; the mask, where a trial has one, acts here.
        loss = step.stream_loss()
        for replay in step.replays:  # none in the first step, when the memory is empty
            loss = loss + self.past * step.cross_entropy(replay)
        return loss

    # Other hooks, if a loss is not enough (docs/your-own.md): prepare, begin_task, end_task,
    # begin_step, adjust_gradients, after_step, scores.
