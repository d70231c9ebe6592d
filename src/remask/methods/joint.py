"""JOINT: all tasks at once, shuffled together; the upper bound."""

from remask.methods.sgd import SGD


class Joint(SGD):
    """loss = CE(all data), trained once after the last task has arrived."""

    name = "joint"
    title = "JOINT"
    learns = "union"
    unmaskable = "JOINT sees every class at once, so there is no absent class to mask"
