"""What methods raise."""

from remask.errors import SettingsError


class MethodError(SettingsError):
    """A method that cannot run with these settings; the message says why, and what to do."""
