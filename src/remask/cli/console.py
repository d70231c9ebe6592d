"""Where the command line writes: results to standard output, everything else to standard error."""

import codecs
import os
import sys

from remask.console import PlainConsole, errors

__all__ = ["errors", "open_streams", "output", "write_out"]

_WIDTH_OF_A_FILE = 160
_IN_ASCII = {"±": "+-", "\N{MINUS SIGN}": "-", "∞": "inf", "†": "*", "─": "-", "…": "..."}


def open_streams() -> None:
    """Make printing safe: characters that a terminal lacks are spelled out instead of raising.

    A standard stream that is closed becomes an empty one: otherwise the next file to be opened
    would take its place, and results would be printed into it.
    """
    codecs.register_error("remask", _spell_out)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="remask")
    for number in range(3):
        if not _is_open(number):  # then it is the one that the next file gets
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
        errors.print("note: standard output is closed: what is printed there is lost")


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _spell_out(error: UnicodeError) -> tuple[str, int]:
    """What to write instead of characters that the terminal's encoding lacks."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(_IN_ASCII.get(character, "?") for character in lacking), error.end


def _is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


# A pipe or a file has no width, and a table in it must not be cut.
output = PlainConsole(width=None if _is_terminal() else _WIDTH_OF_A_FILE)


def write_out(text: str) -> None:
    """Write to standard output as it is, such as JSON: not wrapped, and nothing in it replaced."""
    sys.stdout.write(text)
