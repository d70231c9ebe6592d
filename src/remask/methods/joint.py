"""JOINT: all tasks at once, shuffled together; the upper bound."""

from remask.methods.base import Method
from remask.methods.step import Step, Term


class Joint(Method):
    """loss = CE(all data), trained once after the last task has arrived."""

    name = "joint"
    title = "JOINT"
    learns = "union"
    unmaskable = "JOINT sees every class at once, so there is no absent class to mask"

    def terms(self, step: Step) -> list[Term]:
        """Return the cross-entropy over all classes."""
        return step.stream_terms()
