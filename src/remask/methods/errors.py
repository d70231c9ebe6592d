"""What methods raise."""

from remask.errors import RemaskError


class MethodError(RemaskError, ValueError):
    """A method that cannot run with these settings; the message says why, and what to do."""
