"""JOINT: all tasks at once, shuffled together; the upper bound."""

import torch

from remask.methods.base import Method
from remask.methods.step import Step


class Joint(Method):
    """loss = CE(all data), trained once after the last task has arrived."""

    name = "joint"
    title = "JOINT"
    learns = "union"
    unmaskable = "JOINT sees every class at once, so there is no absent class to mask"

    def loss(self, step: Step) -> torch.Tensor:
        """Cross-entropy over all classes."""
        return step.stream_loss()
