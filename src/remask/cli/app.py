"""`remask`: the table of commands, and how errors are shown.

The module of a command is imported when the command is called: `remask --help` imports none.
"""

import atexit
import gc
import os
import sys
from importlib import import_module
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup
from typer.main import get_command
from typing_extensions import override

import remask
from remask.cli.command import output, with_groups
from remask.console import errors
from remask.errors import RemaskError, Stopped
from remask.machine import lacks_memory

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
