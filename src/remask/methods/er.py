"""ER: experience replay (Rolnick et al. 2019; Riemer et al. 2019). With a mask: MSER."""

import torch

from remask.methods.base import Method
from remask.methods.step import Step


class ER(Method):
    """loss = mean CE over the samples of stream and replay together."""

    name = "er"
    title = "ER"
    summary = "replays stored samples beside the stream; with a mask: MSER"
    draws = 1
    one_forward = True

    def loss(self, step: Step) -> torch.Tensor:
        """Stream and replay weigh as many samples as they have."""
        if not step.replays:
            return step.stream_loss()
        (replay,) = step.replays
        arrived, recalled = step.stream.labels.shape[1], replay.labels.shape[1]
        stream_loss, replay_loss = step.stream_loss(), step.cross_entropy(replay)
        self.engine.note("stream", stream_loss)
        self.engine.note("replay", replay_loss)
        weighed = arrived * stream_loss + recalled * replay_loss
        return weighed / (arrived + recalled)
