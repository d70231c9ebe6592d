"""What to say of an exception that ended a job."""

import traceback

from remask.errors import RemaskError
from remask.machine import lacks_memory


def describe_failure(error: Exception) -> str:
    """The message alone for a user's mistake; the place in the code as well for anything else."""
    if isinstance(error, RemaskError):
        return str(error)
    if lacks_memory(error):
        return "there is not enough memory; take a smaller buffer or --stack, or fewer --workers"
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} (at {place.filename}:{place.lineno})"
