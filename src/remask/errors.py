"""What ends a command early: what a user can cause or mend, and a stop that was asked for."""

import signal
from collections.abc import Sequence


class RemaskError(Exception):
    """The message says what was wrong, where, and what to do. The command line prints just it."""


class MissingPackageError(RemaskError):
    """A package that is an extra is not installed; the message says which."""


class SettingsError(RemaskError, ValueError):
    """Settings that cannot be run; the message says which, and what is allowed."""


class MethodError(SettingsError):
    """A method cannot run with the given settings."""


class Stopped(Exception):  # noqa: N818 - a request that was granted, not an error
    """The run was asked to stop, and everything is saved but what is listed."""

    def __init__(self, number: int, unsaved: Sequence[str] = ()) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code = 128 + number
        self.unsaved = list(unsaved)
        """What could not be saved, and why, for people."""
