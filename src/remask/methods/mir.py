"""MIR: maximally interfered retrieval (Aljundi et al. 2019)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from remask.methods.base import Method
from remask.methods.step import Batch, Step
from remask.nets.stacked import Gradients, LossGradients

_CANDIDATES = 5
"""Candidates per replayed sample, as published: 50 for 10."""


class MIR(Method):
    """loss = CE(stream) + CE(replay), where replay are the samples that the stream harms most.

    Of `5 * replay_batch` samples from memory, it replays those whose loss would rise most in a step
    on the stream alone.
    """

    name = "mir"
    title = "MIR"
    draws = 1  # for the reservoir; `recall` draws the candidates

    def loss(self, step: Step) -> Tensor:
        """Return the loss; `adjust_gradients` adds the gradient of the stream's part."""
        net, context = self.context.net, self.context
        stream = step.stream_loss()
        context.note("stream", stream)
        if not step.replays:
            return stream
        self._of_stream = net.gradients(stream)
        candidates = context.recall(_CANDIDATES * context.replay_batch)
        with torch.no_grad():
            copies = {name: tensor.clone() for name, tensor in net.buffers.items()}
            ahead = {**net.moved(self._of_stream, context.lr), **copies}
            before, after = candidates.logits, net.teach(candidates.inputs, ahead)
            rise = _losses(after, candidates.labels) - _losses(before, candidates.labels)
        chosen = rise.topk(min(context.replay_batch, rise.shape[1])).indices
        trials = torch.arange(context.trials, device=context.device).unsqueeze(1)
        replay = step.cross_entropy(
            Batch.alone(candidates.inputs[trials, chosen], candidates.labels.gather(1, chosen), net)
        )
        context.note("replay", replay)
        return stream.detach() + replay

    def adjust_gradients(self, step: Step, gradients: LossGradients) -> Gradients:
        """Add the gradient of the stream's loss, which is known already."""
        if step.replays:
            gradients.add(self._of_stream)
        return gradients


def _losses(logits: Tensor, labels: Tensor) -> Tensor:
    """The cross-entropy of each sample: [S, B, K], [S, B] -> [S, B]."""
    return F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
