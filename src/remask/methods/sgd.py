"""SGD, without a defence against forgetting, and JOINT, all tasks at once: the two bounds."""

from remask.methods.base import Method
from remask.methods.step import Step, Term


class SGD(Method):
    """loss = CE(stream)."""

    name = "sgd"
    title = "SGD"
    fixed_terms = True

    def terms(self, step: Step) -> list[Term]:
        return step.stream_terms()


class Joint(SGD):
    """loss = CE(all data), trained once after the last task has arrived."""

    name = "joint"
    title = "JOINT"
    learns = "union"
    unmaskable = "JOINT sees every class at once, so there is no absent class to mask"
