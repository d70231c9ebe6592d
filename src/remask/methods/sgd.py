"""SGD: no defence against forgetting; the lower bound."""

from remask.methods.base import Method
from remask.methods.step import Step, Term


class SGD(Method):
    """loss = CE(stream)."""

    name = "sgd"
    title = "SGD"
    summary = "plain training on the stream, no memory: the lower bound"

    def terms(self, step: Step) -> list[Term]:
        """Cross-entropy on the stream."""
        return step.stream_terms()
