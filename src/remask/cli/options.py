"""The options that several commands have."""

import functools
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from remask.cli.completing import VALUES
from remask.cli.generated import Group, option, option_for
from remask.config import IDENTITY, TrialConfig
from remask.results import FILTERS
from remask.runs.options import RunOptions

WHAT = "What to run"
_SETTINGS = "Settings; the paper's unless given"
HOW = "How to run it"
_ONLY = "Only these results; several values with commas between them"

SETTINGS = Group(
    option_for(name, field, WHAT if name in IDENTITY else _SETTINGS)
    for name, field in TrialConfig.model_fields.items()
)
RUN_OPTIONS = Group(
    (
        option_for(name, field, HOW, field.default)
        for name, field in RunOptions.model_fields.items()
        if name != "progress"
    ),
    make=functools.partial(RunOptions, progress=True),
)
FILTER_OPTIONS = Group(
    option(
        name,
        filter_.description,
        filter_.metavar,
        _ONLY,
        str,
        callback=lambda text: None if text is None else [part.strip() for part in text.split(",")],
        autocompletion=VALUES.get(name),
    )
    for name, filter_ in FILTERS.items()
)

Settings = Annotated[dict[str, Any], SETTINGS]
Options = Annotated[RunOptions, RUN_OPTIONS]
Filters = Annotated[dict[str, Any], FILTER_OPTIONS]

Trials = Annotated[
    int | None,
    typer.Option(metavar="N", help="Seeds to run. Default: 10.", rich_help_panel=WHAT),
]
Data = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="A folder or archive that has the dataset already."),
]
OwnCode = Annotated[
    bool,
    typer.Option(
        "--own-code",
        help="Import the `module:name` that a file names, too: importing runs it.",
        rich_help_panel=HOW,
    ),
]


def _skip_unreadable(asked: bool) -> None:
    if asked:
        os.environ["REMASK_SKIP_UNREADABLE"] = "1"  # the user's own function loads the folder


SkipUnreadable = Annotated[
    bool,
    typer.Option(
        "--skip-unreadable",
        help="Leave out images that cannot be read, and name them, instead of refusing the folder.",
        callback=_skip_unreadable,
        rich_help_panel=HOW,
    ),
]
OutputFile = Annotated[
    Path | None,
    typer.Option(
        "--output",
        metavar="FILE",
        help="Also write everything about the trials to this file, as JSON.",
        rich_help_panel=HOW,
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Say what would be run and how long it would take, and leave.",
        rich_help_panel=HOW,
    ),
]
Markdown = Annotated[
    bool, typer.Option("--markdown", help="A table for a document, not for the terminal.")
]
StorePath = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="The results store, an SQLite file. Default: $REMASK_STORE, else "
        "`~/.local/share/remask/results.db`.",
    ),
]
LearnerFolder = Annotated[Path, typer.Argument(metavar="DIR", help="The learner's folder.")]
DiscardVisit = Annotated[
    bool, typer.Option("--discard", help="Give up a visit that is not finished.")
]
OwnEncoder = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="The learner's encoder, if it is your own code: `module:function`."
    ),
]
OwnNet = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="The learner's net, if it is your own code: `module:function`."
    ),
]
Abstain = Annotated[
    float | None,
    typer.Option(
        metavar="ACCURACY",
        help="Name no class where the accuracy on held-out samples would be lower, such as 0.9.",
    ),
]
Unknown = Annotated[
    float | None,
    typer.Option(
        metavar="RATE",
        help="Mark what resembles no known class, at this rate of false alarms, such as 0.05.",
    ),
]
OwnMethod = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="The learner's method, if it is your own code: `module:Class`."
    ),
]


def _usable(device: str) -> str:
    if device != "cpu":
        from remask.runs.train import check_device  # torch: not before it is needed

        check_device(device)
    return device


Device = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Where to compute, as torch names it: cpu, cuda, mps.",
        callback=_usable,
        autocompletion=VALUES["device"],
    ),
]
