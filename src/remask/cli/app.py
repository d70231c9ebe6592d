"""`remask`: the commands, and how errors are shown."""

import atexit
import gc
import os
import sys
from typing import Annotated

import typer

import remask
from remask.cli import process
from remask.cli.commands import COMMANDS, MARKUP, LazyGroup
from remask.cli.console import errors, open_streams, output
from remask.errors import RemaskError, Stopped
from remask.machine import lacks_memory

app = typer.Typer(
    name="remask",
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=MARKUP,
    help="Replay-based continual learning with the general masked softmax.",
    epilog="Start with `remask demo`.",
)
for _name, _command in COMMANDS.items():
    app.command(_name, help=_command.summary, rich_help_panel=_command.panel)(lambda: None)


@app.callback(invoke_without_command=True)
def _top(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.")
    ] = False,
) -> None:
    if version:
        output.print(remask.__version__)
        raise typer.Exit


def main() -> None:
    """Run the command line as a process of its own."""
    # Python's last collections would look at every object of torch, for half a second.
    atexit.register(gc.freeze)
    process.declare_ours_alone()
    command_line()


def command_line() -> None:
    """Run the command line; a user's mistake is a message, never a traceback."""
    try:
        open_streams()
        app(prog_name="remask")  # however it was started: shells complete that name
    except Stopped as stopped:
        _say_what_is_saved(stopped)
        sys.exit(stopped.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader of a pipe has left, as in `remask results list | head`.
        _print_no_more()
        sys.exit(141)
    except RemaskError as error:
        _refuse(str(error))
    except OSError as error:
        if os.environ.get("REMASK_DEBUG"):
            raise
        _print_no_more()  # printing may be what failed, such as to a file on a full disk
        place = f"{error.filename}: " if error.filename else ""
        _refuse(f"{place}{error.strerror or error}. What was stored before is unharmed.")
    except Exception as error:
        if os.environ.get("REMASK_DEBUG"):
            raise
        if lacks_memory(error):
            _refuse("there is not enough memory for this. What was stored before is unharmed.")
        _refuse(
            f"{type(error).__name__}: {error}. This is a mistake in remask, not yours. "
            "Set REMASK_DEBUG=1 to see where it happened, and please report it."
        )


def _print_no_more() -> None:
    """Keep Python from trying again, when it ends, to print what could not be printed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say_what_is_saved(stopped: Stopped) -> None:
    if stopped.unsaved:
        errors.print(
            f"{stopped}, but not everything could be saved:",
            *stopped.unsaved,
            "Of these only the latest checkpoint is left, if there was one; everything else is "
            "saved. The same command, or `remask resume`, goes on from there.",
            sep="\n",
            highlight=False,
            soft_wrap=True,
        )
    else:
        errors.print(
            f"{stopped}; everything is saved. The same command, or `remask resume`, goes on.",
            highlight=False,
        )


def _refuse(message: str) -> None:
    errors.print("error:", style="bold red", end=" ")
    errors.print(message, highlight=False, soft_wrap=True)
    sys.exit(1)
