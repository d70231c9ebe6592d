"""Names of classes and visits in the files of a learner."""

from typing import Annotated

from pydantic import AfterValidator

from remask.datasets import DataError
from remask.user_data import checked_name


def _stored(name: str) -> str:
    try:
        return checked_name(name, "a class or visit")
    except DataError as error:
        raise ValueError(str(error)) from None


StoredName = Annotated[str, AfterValidator(_stored)]
"""A name in a file of a learner, checked as those that users give."""
