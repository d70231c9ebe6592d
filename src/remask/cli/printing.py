"""What commands print: results to standard output, everything else to standard error.

Every command has the options --json and --quiet:

    @with_groups
    def methods(*, printer: Printing) -> None: ...
"""

import codecs
import json
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from remask.cli.groups import Group, option
from remask.console import PlainConsole, errors, silence
from remask.errors import RemaskError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from remask.experiments.options import RunOptions

_PANEL = "What to print"
_ASCII = {"±": "+-", "\N{MINUS SIGN}": "-", "∞": "inf", "†": "*", "─": "-", "…": "..."}
_FILE_WIDTH = 160

# A pipe or a file has no width, and a table in it must not be cut.
_is_terminal = sys.stdout is not None and sys.stdout.isatty()
output = PlainConsole(width=None if _is_terminal else _FILE_WIDTH)


@dataclass(frozen=True)
class Printer:
    """Prints the results of one command."""

    json: bool = False
    """Print results as JSON."""
    quiet: bool = False
    """Print only results and errors."""

    def result(self, value: object, *shown: "RenderableType") -> None:
        """Print `value` as JSON, or else `shown`, which is for people."""
        if self.json:
            write_out(json.dumps(_plain(value), indent=1, allow_nan=False) + "\n")
        else:
            self.show(*shown)

    def show(self, *shown: "RenderableType") -> None:
        """Print part of a result for people; nothing with --json."""
        for each in shown if not self.json else ():
            output.print(each)

    def states(self, rows: Iterable[tuple[str, str]], styles: Mapping[str, str]) -> None:
        """Print lines for people that each begin with a state in its style."""
        width = max(map(len, styles)) + 1
        for state, text in rows if not self.json else ():
            output.print(f"{state:<{width}}", style=styles[state], end="")
            output.print(text)

    def note(self, text: str) -> None:
        """Print a note to standard error, unless quiet."""
        self.console.print(text)

    @property
    def console(self) -> PlainConsole:
        """The console for progress and notes."""
        return silence if self.quiet else errors

    def applied_to(self, options: "RunOptions") -> "RunOptions":
        """Return the options of a run that prints no more than this printer."""
        return options.model_copy(update={"progress": False}) if self.quiet else options


Printing = Annotated[
    Printer,
    Group(
        (
            option("json", "Print JSON, for programs.", None, _PANEL, bool, "--json"),
            option("quiet", "Print results and errors only.", None, _PANEL, bool, "--quiet"),
        ),
        make=Printer,
    ),
]


def write_out(text: str) -> None:
    """Write to standard output unchanged, such as JSON: not wrapped, no character replaced."""
    sys.stdout.write(text)


def exit_if_any(problems: Sequence[object]) -> None:
    """Print problems, and exit with 1 if there are any."""
    for problem in problems:
        errors.print(str(problem), style="red")
    if problems:
        raise typer.Exit(1)


def confirm(question: str, verb: str, past: str) -> None:
    """Ask before something is deleted; exits with 1 unless the answer is yes.

    Raises RemaskError if there is no terminal to ask at.
    """
    if sys.stdin is None or not sys.stdin.isatty():
        raise RemaskError(
            f"there is no terminal to ask at, so nothing was {past}. To {verb} without being "
            f"asked, add --yes."
        )
    errors.print(f"{question} [y/N]", end=" ")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        errors.print(f"Nothing was {past}.")
        raise typer.Exit(1)


def open_streams() -> None:
    """Replace characters that a terminal cannot show, and closed standard streams.

    Otherwise the next file to be opened would get the number of a closed stream, and results would
    be printed into it.
    """
    codecs.register_error("remask", _in_ascii)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="remask")
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # closed, so it is the number that the next file gets
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
        errors.print("note: standard output is closed: results are not printed")


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    missing = error.object[error.start : error.end]
    return "".join(_ASCII.get(character, "?") for character in missing), error.end


def _plain(value: Any) -> object:
    """Convert a value to strict JSON: what is not a number becomes null, and paths text."""
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if hasattr(value, "model_dump"):
        return _plain(value.model_dump(mode="json"))
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
