"""What a user of a learner can cause or mend."""

from remask.errors import RemaskError


class LearnerError(RemaskError):
    """The message says what was wrong, where, and what to do; the learner is as it was."""
