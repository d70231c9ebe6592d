"""Where remask says something on the way: standard error, as plain text.

Whoever reads may leave before a run has ended: a terminal is closed, the reader of a pipe ends.
That is no reason to end the run, so what is said on the way goes astray then without a word.
"""

import sys
from contextlib import suppress
from typing import IO, Any, cast

from rich.console import Console
from rich.text import Text
from typing_extensions import override

from remask.printable import printable


class PlainConsole(Console):
    """Prints texts as they are: names come from files, and are neither markup nor commands."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    @override
    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)


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


errors = PlainConsole(stderr=True, file=cast(IO[str], _StandardError()))
silence = PlainConsole(quiet=True, force_terminal=False)
"""For those who want to hear nothing."""
