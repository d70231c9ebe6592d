"""`remask`: the table of commands, what they print, and how errors are shown.

The module of a command is imported when the command is called: `remask --help` imports none.
Results go to standard output, everything else to standard error. Every command has --json and
--quiet, and a parameter may stand for a group of options:

    def run(*, settings: Annotated[dict[str, Any], SETTINGS], printer: Printing) -> None: ...
"""

import atexit
import functools
import gc
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer
from typer.core import TyperGroup
from typer.main import get_command
from typing_extensions import override

import remask
from remask.cli.options import Group, flag, option
from remask.console import PlainConsole, errors, silence
from remask.errors import RemaskError, Stopped
from remask.machine import lacks_memory

if TYPE_CHECKING:
    from rich.console import RenderableType

_PANEL = "What to print"
_FILE_WIDTH = 160
_MARKUP: Literal["markdown"] = "markdown"
_LEARNER = "A learner: one model that learns new classes for years"
_UNHARMED = "Stored results are unharmed."
own_process = False
"""Whether nothing but the command line runs in this process."""


COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("trials:demo", "See masked replay forget less, in under a minute."),
    "run": ("trials:run", "Train trials and print their accuracy and forgetting."),
    "sweep": ("trials:sweep", "Train every combination of the settings in a file."),
    "reproduce": ("trials:reproduce", "Run a table or figure of the paper, and compare."),
    "resume": ("trials:resume", "Continue runs that were stopped."),
    "report": ("results:report", "Write the results as a page, with tables and figures."),
    "check": ("tools:check", "Check a method of your own for silent errors, in seconds."),
    "new": ("tools:new", "Write a method, net or data of your own to start from."),
    "doctor": ("tools:doctor", "Check this installation, its store and its runs."),
    "methods": ("tools:methods", "List the methods."),
    "benchmarks": ("tools:benchmarks", "List the benchmarks."),
    "encoders": ("tools:encoders", "List the pretrained encoders of photographs and texts."),
    "results": ("results:COMMANDS", "List, compare, export, merge or delete stored results."),
    "data": ("tools:DATA_COMMANDS", "Fetch and check the datasets."),
    "learn": ("learn:learn", "Teach a learner the classes of images or texts."),
    "predict": ("learner:predict", "Name the classes of images or texts."),
    "evaluate": ("learner:evaluate", "Measure accuracy on images or texts of known classes."),
    "history": ("learner:history", "Show the visits of a learner and its accuracy per class."),
    "show": ("learner:show", "Show the classes, memory, settings and size of a learner."),
    "undo": ("learner:undo", "Undo the last visit of a learner."),
    "rename": ("learner:rename", "Rename a class of a learner, or merge two classes."),
    "forget": ("learner:forget", "Remove a class from every file of a learner."),
    "export": ("learner:export", "Write the model of a learner for other programs."),
}
"""By name: `module:function` in this package, and the first line of its help text.

For a group it is `module:dict`, with its functions by name.
"""


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

    Raises RemaskError if standard input is not a terminal.
    """
    if sys.stdin is None or not sys.stdin.isatty():
        raise RemaskError(
            f"cannot ask for confirmation: the input is not a terminal, so nothing was {past}. "
            f"Use --yes to {verb} without confirmation."
        )
    errors.print(f"{question} [y/N]", end=" ")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        errors.print(f"Nothing was {past}.")
        raise typer.Exit(1)


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


class LazyGroup(TyperGroup):
    """A group with the names and summaries of its commands; imports the one that is called."""

    @override
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if name is None else load(name), rest


def load(name: str) -> Any:
    """Return the named command with all its options."""
    place, summary = COMMANDS[name]
    module, _, attribute = place.partition(":")
    found = getattr(import_module(f"remask.cli.{module}"), attribute)
    group = typer.Typer(
        add_completion=False, no_args_is_help=True, rich_markup_mode=_MARKUP, help=summary
    )
    for each, command in (found if isinstance(found, dict) else {name: found}).items():
        group.command(each)(with_groups(command))
    return get_command(group)


app = typer.Typer(
    name="remask",
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=_MARKUP,
    help="Replay-based continual learning with the general masked softmax.",
    epilog="Start with `remask demo`.",
)
for _name, (_place, _summary) in COMMANDS.items():
    _panel = _LEARNER if _place.startswith("learn") else None
    app.command(_name, help=_summary, rich_help_panel=_panel)(lambda: None)


@app.callback(invoke_without_command=True)
def _top(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        output.print(remask.__version__)
        raise typer.Exit


def main(*, alone: bool = True) -> None:
    """Run the command line; users' errors are printed as messages, without a traceback.

    With `alone`, nothing else runs in this process.
    """
    global own_process
    own_process = alone
    if alone:  # Python's last garbage collections would take half a second, because of torch
        atexit.register(gc.freeze)
    try:
        open_streams()
        app(prog_name="remask")  # the name that shells complete
    except Stopped as stopped:
        errors.print(f"{stopped}. Run the same command, or `remask resume`, to continue.")
        sys.exit(stopped.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except RemaskError as error:
        _exit_with(str(error))
    except Exception as error:
        if os.environ.get("REMASK_DEBUG"):
            raise
        _exit_with(_explained(error))


def _explained(error: Exception) -> str:
    if lacks_memory(error):
        return f"out of memory. {_UNHARMED}"
    if isinstance(error, OSError):
        _drop_output()  # printing may be what failed, such as to a file on a full disk
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror or error}. {_UNHARMED}"
    return (
        f"{type(error).__name__}: {error}. This is a bug in remask. Set REMASK_DEBUG=1 to see "
        "where it happened, and please report it."
    )


def _drop_output() -> None:
    """Keep Python from flushing standard output at exit, which would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _exit_with(message: str) -> None:
    errors.print("error:", style="bold red", end=" ")
    errors.print(message)
    sys.exit(1)


def open_streams() -> None:
    """Replace characters that a terminal cannot show, and closed standard streams.

    Otherwise the next file to be opened would get the number of a closed stream, and results would
    be printed into it.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
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
