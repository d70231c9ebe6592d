"""The options that several commands have."""

import functools
import os
from pathlib import Path
from typing import Annotated, Any

from remask.cli.completion import VALUES
from remask.cli.groups import Group, flag, opt, option, option_for
from remask.config import IDENTITY, TrialConfig
from remask.experiments.options import RunOptions
from remask.store.filters import FILTERS

WHAT = "What to run"
HOW = "How to run it"
_SETTINGS = "Settings; the paper's unless given"
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


def _skip_unreadable(given: bool) -> None:
    if given:
        os.environ["REMASK_SKIP_UNREADABLE"] = "1"  # the user's own function loads the folder


Trials = Annotated[int | None, opt("N", "Seeds to run. Default: 10.", panel=WHAT)]
OwnCode = Annotated[
    bool,
    flag("--own-code", "Import the `module:name` that a file names, too: importing runs it.", HOW),
]
SkipUnreadable = Annotated[
    bool,
    flag(
        "--skip-unreadable",
        "Skip images that cannot be read, and name them, instead of refusing the folder.",
        HOW,
        callback=_skip_unreadable,
    ),
]
OutputFile = Annotated[
    Path | None,
    opt("FILE", "Write everything about the trials to this file, as JSON.", "--output", panel=HOW),
]
DryRun = Annotated[bool, flag("--dry-run", "Print what would be run, and how long it takes.", HOW)]
Markdown = Annotated[bool, flag("--markdown", "Print a table for a document.")]
_STORE = "The results store. Default: $REMASK_STORE, else `~/.local/share/remask/results.db`."
StorePath = Annotated[Path | None, opt("FILE", _STORE)]
