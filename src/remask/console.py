"""Consoles that print plain text; progress and notes go to standard error."""

import sys
from contextlib import suppress
from typing import IO, Any, cast

from rich.console import Console
from rich.text import Text
from typing_extensions import override

from remask.errors import printable


class PlainConsole(Console):
    """Prints text unwrapped and as it is: names from files are neither markup nor control codes."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, soft_wrap=True, **options)

    @override
    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)


class _StandardError:
    """The current standard error. Writing never fails: a closed terminal must not end a run."""

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):  # ValueError: closed
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def _stream(self) -> IO[str]:
        # rich replaces the stream while it shows progress bars.
        return cast(IO[str], getattr(sys.stderr, "rich_proxied_file", sys.stderr))


errors = PlainConsole(stderr=True, file=cast(IO[str], _StandardError()))
silence = PlainConsole(quiet=True, force_terminal=False)
