"""What commands share: groups of options, and what they print.

A parameter of a command may stand for several options, which are made from fields. Results go to
standard output, everything else to standard error. Every command has --json and --quiet:

    def run(*, settings: Annotated[dict[str, Any], SETTINGS], printer: Printing) -> None: ...
"""

import functools
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

import typer

from remask.cli.completion import VALUES, Completion, one_of
from remask.console import PlainConsole, errors, silence
from remask.errors import RemaskError

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo
    from rich.console import RenderableType

STORE = "The results store. Default: $REMASK_STORE, else `~/.local/share/remask/results.db`."
_METAVARS = {int: "N", float: "X", str: "NAME", Path: "PATH"}
_PANEL = "What to print"
_FILE_WIDTH = 160


class Group:
    """The options that one parameter of a command stands for."""

    def __init__(
        self, options: Iterable[inspect.Parameter], make: Callable[..., Any] = dict
    ) -> None:
        self.options = tuple(options)
        self.make = make
        """Makes the parameter's value from the options that were given, by name."""

    def only(self, *names: str) -> "Group":
        """Return a group of the named options."""
        return Group((option for option in self.options if option.name in names), self.make)

    def without(self, *names: str) -> "Group":
        """Return a group of all options but the named ones."""
        return Group((option for option in self.options if option.name not in names), self.make)


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameters of a command that are groups by the options of the groups."""
    options: list[inspect.Parameter] = []
    groups: dict[str, Group] = {}
    for parameter in inspect.signature(command).parameters.values():
        group = next((p for p in get_args(parameter.annotation) if isinstance(p, Group)), None)
        options += [parameter] if group is None else group.options
        if group is not None:
            groups[parameter.name] = group

    @functools.wraps(command)
    def parsed(**values: Any) -> None:
        for name, group in groups.items():
            taken = {option.name: values.pop(option.name) for option in group.options}
            given = {option: value for option, value in taken.items() if value is not None}
            values[name] = group.make(**given)
        command(**values)

    parsed.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    parsed.__annotations__ = {option.name: option.annotation for option in options}
    return parsed


def opt(metavar: str, text: str, *names: str, panel: str | None = None, **more: Any) -> Any:
    """Return an option with a value."""
    return typer.Option(*names, metavar=metavar, help=text, rich_help_panel=panel, **more)


def flag(name: str, text: str, panel: str | None = None, **more: Any) -> Any:
    """Return an option without a value."""
    return typer.Option(name, help=text, rich_help_panel=panel, **more)


def arg(metavar: str, text: str, **more: Any) -> Any:
    """Return an argument."""
    return typer.Argument(metavar=metavar, help=text, **more)


def option(name: str, kind: Any, info: Any) -> inspect.Parameter:
    """Return a member of a group, which is None unless it is given."""
    info.show_default = False
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, default=None, annotation=Annotated[kind | None, info])


def option_for(
    name: str,
    field: "FieldInfo",
    panel: str | None,
    default: object = None,
    completions: Mapping[str, Completion] = VALUES,
) -> inspect.Parameter:
    """Return the option for a field of a model; the help text ends with the default, if any."""
    from remask.config import OnCommandLine  # commands without settings need no pydantic

    written = next((part for part in field.metadata if isinstance(part, OnCommandLine)), None)
    inner = _inner_type(field.annotation)
    # Values of other types, and lists of values, are parsed later, from text.
    kind = inner if inner in (int, float, bool, Path) else str
    names = []
    if kind is bool:
        flag_name = name.replace("_", "-")
        names = [f"--{flag_name}/--no-{flag_name}" if field.default is True else f"--{flag_name}"]
    elif written is not None and written.repeated_as is not None:
        kind, names = list[str], [f"--{written.repeated_as}"]
    elif written is not None and written.several:
        kind = str
    metavar = _METAVARS.get(kind) if written is None else written.metavar
    text = field.description or ""
    if default is not None and default is not False:
        text += f" Default: {f'{default:g}' if isinstance(default, float) else default}."
    complete = completions.get(name) or one_of(get_args(inner))
    info = typer.Option(
        *names, help=text, metavar=metavar, rich_help_panel=panel, autocompletion=complete
    )
    return option(name, kind, info)


def _inner_type(annotation: Any) -> Any:
    """The annotation without what surrounds it: `int` of `Annotated[int, ...] | None`."""
    if get_origin(annotation) is Annotated:
        return _inner_type(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        options = [part for part in get_args(annotation) if part is not NoneType]
        return _inner_type(options[0]) if len(options) == 1 else str
    return annotation


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
            from pydantic_core import to_jsonable_python  # slow to import

            plain = to_jsonable_python(value, inf_nan_mode="null", fallback=str)
            write_out(json.dumps(plain, indent=1, allow_nan=False) + "\n")
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


_JSON = option("json", bool, flag("--json", "Print JSON, for programs.", _PANEL))
_QUIET = option("quiet", bool, flag("--quiet", "Print results and errors only.", _PANEL))
Printing = Annotated[Printer, Group((_JSON, _QUIET), make=Printer)]
StorePath = Annotated[Path | None, opt("FILE", STORE)]
Markdown = Annotated[bool, flag("--markdown", "Print a table for a document.")]


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
