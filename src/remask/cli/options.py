"""The options that several commands have."""

import functools
import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field

from remask.cli.command import Group, flag, opt, option, option_for
from remask.cli.completion import VALUES
from remask.config import IDENTITY, TrialConfig
from remask.experiments.options import RunOptions
from remask.setting_types import OnCommandLine
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


_STORE = "The results store. Default: $REMASK_STORE, else `~/.local/share/remask/results.db`."
StorePath = Annotated[Path | None, opt("FILE", _STORE)]
Markdown = Annotated[bool, flag("--markdown", "Print a table for a document.")]
_File = Annotated[Path | None, OnCommandLine("FILE")]


class HowToRun(BaseModel):
    """What `run` and `sweep` do besides training."""

    own_code: bool = Field(
        False, description="Import the `module:name` that a file names, too: importing runs it."
    )
    skip_unreadable: bool = Field(
        False,
        description="Skip images that cannot be read, and name them, instead of refusing the "
        "folder.",
    )
    dry_run: bool = Field(False, description="Print what would be run, and how long it takes.")
    output: _File = Field(
        None, description="Write everything about the trials to this file, as JSON."
    )
    store: _File = Field(None, description=_STORE)

    def model_post_init(self, _: object) -> None:
        """The user's own function loads the folder, perhaps in another process."""
        if self.skip_unreadable:
            os.environ["REMASK_SKIP_UNREADABLE"] = "1"


HOW_TO_RUN = Group(
    (
        option_for(name, field, None if name == "store" else HOW)
        for name, field in HowToRun.model_fields.items()
    ),
    make=HowToRun,
)
How = Annotated[HowToRun, HOW_TO_RUN]
