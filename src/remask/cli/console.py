"""Where the command line writes: results to standard output, everything else to standard error.

Whoever reads may leave before a run has ended: a terminal is closed, the reader of a pipe ends.
That is no reason to end the run, so what is said on the way goes astray then without a word.
"""

import codecs
import os
import sys
from contextlib import suppress
from typing import IO, Any, cast

from rich.console import Console
from rich.text import Text
from typing_extensions import override

from remask.printable import printable

_WIDTH_OF_A_FILE = 160
_IN_ASCII = {"±": "+-", "\N{MINUS SIGN}": "-", "∞": "inf", "†": "*", "─": "-", "…": "..."}


class PlainConsole(Console):
    """Prints texts as they are: names come from files, and are neither markup nor commands."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    @override
    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)


def open_streams() -> None:
    """Let what a terminal cannot show not keep the rest from being shown.

    A standard stream that is closed becomes an empty one: the next file to be opened would take its
    place, and have results printed into it.
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


class _StandardError:
    """Standard error, whatever it is at the moment; nothing that is written to it ever fails."""

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):  # ValueError: it was closed
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def _stream(self) -> IO[str]:
        # While bars are shown, rich puts itself in the place of the stream.
        return cast(IO[str], getattr(sys.stderr, "rich_proxied_file", sys.stderr))


# A pipe or a file has no width of its own, and a table in it must not be cut.
output = PlainConsole(width=None if _is_terminal() else _WIDTH_OF_A_FILE)
errors = PlainConsole(stderr=True, file=cast(IO[str], _StandardError()))
