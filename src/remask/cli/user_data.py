"""The options of commands that read a user's images or texts, and the report of what they skip."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from remask.cli.console import errors
from remask.cli.printer import Printer

if TYPE_CHECKING:
    from remask import Learner
    from remask.user_data import TextFile

_TEXTS = "Texts instead of images"

SkipUnreadable = Annotated[
    bool,
    typer.Option("--skip-unreadable", help="Skip files that cannot be read, and name them."),
]
TextColumn = Annotated[
    str | None,
    typer.Option(
        "--text",
        metavar="COLUMN",
        help="The column of the texts, in FILE.csv or FILE.jsonl.",
        rich_help_panel=_TEXTS,
    ),
]
LabelColumn = Annotated[
    str | None,
    typer.Option(
        "--label",
        metavar="COLUMN",
        help="The column of their classes.",
        rich_help_panel=_TEXTS,
    ),
]


def labelled_data(path: Path, text: str | None, label: str | None) -> "Path | TextFile":
    """Return the data that the options name: a folder, or columns of a file."""
    if text is None and label is None:
        return path
    if text is None or label is None:
        raise typer.BadParameter("--text and --label go together: name both columns")
    from remask.user_data import TextFile  # torch: not before it is needed

    return TextFile(path, text, label)


@contextmanager
def skipped_reported(learner: "Learner", printer: Printer) -> Iterator[None]:
    """Print which files were skipped or ignored, when they have been read."""
    from remask.user_data import UnreadableImageWarning  # torch: not before it is needed

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreadableImageWarning)  # it is printed instead
        yield
    if learner.skipped is None:
        return
    if line := learner.skipped.unreadable_line:
        errors.print(line, highlight=False, soft_wrap=True)
    if line := learner.skipped.ignored_line:
        printer.note(line)
