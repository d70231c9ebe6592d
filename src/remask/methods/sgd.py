"""SGD: no defence against forgetting; the lower bound."""

from remask.methods.base import Method
from remask.methods.step import Step, Term


class SGD(Method):
    """loss = CE(stream)."""

    name = "sgd"
    title = "SGD"
    fixed_terms = True

    def terms(self, step: Step) -> list[Term]:
        """Return the cross-entropy on the stream."""
        return step.stream_terms()
