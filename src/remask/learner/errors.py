"""Errors that a user of a learner can cause or mend."""

from pathlib import Path

from remask.errors import RemaskError

RESTORE = "Nothing was changed. Restore a copy of the learner's folder."


class LearnerError(RemaskError):
    """The message says what was wrong, where, and what to do; the learner is as it was."""


def damaged(path: Path, reason: str, advice: str = RESTORE) -> LearnerError:
    """The error for a file that is not as it was written."""
    return LearnerError(f"{path} is damaged: {reason}. {advice}")
