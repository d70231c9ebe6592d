"""The options that several commands have."""

import functools
import inspect
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from remask.cli.command import Group, flag, opt, option, option_for
from remask.cli.completion import VALUES
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

_TRIALS = option("trials", "Seeds to run. Default: 10.", "N", WHAT, int)
Settings = Annotated[dict[str, Any], Group((*SETTINGS.options, _TRIALS))]
Options = Annotated[RunOptions, RUN_OPTIONS]
Filters = Annotated[dict[str, Any], FILTER_OPTIONS]


def _skip_unreadable(given: bool | None) -> None:
    if given:
        os.environ["REMASK_SKIP_UNREADABLE"] = "1"  # the user's own function loads the folder


_STORE = "The results store. Default: $REMASK_STORE, else `~/.local/share/remask/results.db`."
StorePath = Annotated[Path | None, opt("FILE", _STORE)]
Markdown = Annotated[bool, flag("--markdown", "Print a table for a document.")]


@dataclass(frozen=True)
class HowToRun:
    """What `run` and `sweep` do besides training."""

    own_code: bool = False
    skip_unreadable: bool = False
    dry_run: bool = False
    output: Path | None = None
    store: Path | None = None


def _switch(name: str, text: str, **more: Any) -> inspect.Parameter:
    return option(name, text, None, HOW, bool, f"--{name.replace('_', '-')}", **more)


HOW_TO_RUN = Group(
    (
        _switch("own_code", "Import the `module:name` that a file names, too: importing runs it."),
        _switch(
            "skip_unreadable",
            "Skip images that cannot be read, and name them, instead of refusing the folder.",
            callback=_skip_unreadable,
        ),
        _switch("dry_run", "Print what would be run, and how long it takes."),
        option(
            "output", "Write everything about the trials to this file, as JSON.", "FILE", HOW, Path
        ),
        option("store", _STORE, "FILE", None, Path),
    ),
    make=HowToRun,
)
How = Annotated[HowToRun, HOW_TO_RUN]
