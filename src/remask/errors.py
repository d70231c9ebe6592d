"""Exceptions for users' errors, and for a requested stop."""

import signal
from collections.abc import Sequence


class RemaskError(Exception):
    """A user's error. The message has what is wrong, where, and what to do."""


class MissingPackageError(RemaskError):
    """An optional package is not installed; the message names it."""


class SettingsError(RemaskError, ValueError):
    """Invalid settings; the message has which, and what is allowed."""


class MethodError(SettingsError):
    """A method cannot run with the given settings."""


class Stopped(Exception):  # noqa: N818 - a request, not an error
    """A run stopped because of a signal. Everything is saved except `unsaved`."""

    def __init__(self, number: int, unsaved: Sequence[str] = ()) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code = 128 + number
        self.unsaved = list(unsaved)
        """What could not be saved, and why."""
