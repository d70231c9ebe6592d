"""Names of classes and visits: which ones can be shown and stored."""

from typing import Annotated

from pydantic import AfterValidator

from remask.learner.errors import LearnerError

_LONGEST = 200


def is_name(name: str) -> bool:
    """Whether a name can be shown and stored."""
    return name.isprintable() and 0 < len(name) <= _LONGEST


def checked_name(name: str, what: str) -> str:
    """A name that can be shown and stored. Raises LearnerError."""
    if not is_name(name):
        raise LearnerError(
            f"the name of {what} has 1 to {_LONGEST} characters that can be printed, not "
            f"{name!r:.60}"
        )
    return name


def _stored(name: str) -> str:
    if not is_name(name):
        raise ValueError(f"a name has 1 to {_LONGEST} characters that can be printed")
    return name


StoredName = Annotated[str, AfterValidator(_stored)]
"""A name in a file of a learner."""
