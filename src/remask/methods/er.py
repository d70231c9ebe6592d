"""ER: experience replay (Rolnick et al. 2019; Riemer et al. 2019). With a mask: MSER."""

import numpy as np

from remask.methods.base import Method
from remask.methods.step import Step, Term


class ER(Method):
    """loss = mean CE over the samples of stream and replay together.

    Under the online protocol: mean CE over the stream + mean CE over the replay.
    """

    name = "er"
    title = "ER"
    fixed_terms = True
    draws = 1
    one_forward = True

    def terms(self, step: Step) -> list[Term]:
        """Weight stream and replay by their number of samples."""
        if not step.replays:
            return step.stream_terms()
        (replay,) = step.replays
        if self.context.sums_batches:
            return [*step.stream_terms(), Term(replay)]
        sizes = step.stream.labels.shape[1], replay.labels.shape[1]
        # Rounded to float32: a weight has the same bits as a number and as a tensor [S].
        stream, replayed = (float(np.float32(size / sum(sizes))) for size in sizes)
        return [*step.stream_terms(stream), Term(replay, replayed)]
