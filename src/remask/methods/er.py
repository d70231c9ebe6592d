"""ER: experience replay (Rolnick et al. 2019; Riemer et al. 2019). With a mask: MSER."""

from remask.methods.base import Method
from remask.methods.step import Step, Term


class ER(Method):
    """loss = mean CE over the samples of stream and replay together."""

    name = "er"
    title = "ER"
    draws = 1
    one_forward = True

    def terms(self, step: Step) -> list[Term]:
        """Weight stream and replay by their number of samples."""
        if not step.replays:
            return step.stream_terms()
        (replay,) = step.replays
        share = step.stream.labels.shape[1] / (step.stream.labels.shape[1] + replay.labels.shape[1])
        return [*step.stream_terms(share), Term(replay, 1 - share)]
