"""SGD: no defence against forgetting; the lower bound."""

import torch

from remask.methods.base import Method
from remask.methods.step import Step


class SGD(Method):
    """loss = CE(stream)."""

    name = "sgd"
    title = "SGD"

    def loss(self, step: Step) -> torch.Tensor:
        """Cross-entropy on the stream."""
        return step.stream_loss()
