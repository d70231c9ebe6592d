"""ER: experience replay (Rolnick et al. 2019; Riemer et al. 2019). With a mask: MSER."""

import numpy as np

from remask.methods.base import Method
from remask.methods.step import Step, Term


class ER(Method):
    """loss = mean CE over the samples of stream and replay together."""

    name = "er"
    title = "ER"
    draws = 1
    one_forward = True

    def terms(self, step: Step) -> list[Term]:
        """Stream and replay weigh as many samples as they have."""
        if not step.replays:
            return step.stream_terms()
        (replay,) = step.replays
        arrived, recalled = step.stream.labels.shape[1], replay.labels.shape[1]
        # Rounded as the nets are: published runs were, and a last bit grows in thousands of steps.
        share = np.float32(1 / (arrived + recalled))
        weights = [float(np.float32(count) * share) for count in (arrived, recalled)]
        return [*step.stream_terms(weights[0]), Term(replay, weights[1])]
