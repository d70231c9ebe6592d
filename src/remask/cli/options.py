"""Options that several commands share."""

import os
from pathlib import Path
from typing import Annotated

import typer

from remask.store import Store

StorePath = Annotated[
    Path | None,
    typer.Option(
        help="The results store, an SQLite file. Default: $REMASK_STORE, else "
        "`~/.local/share/remask/results.db`.",
        metavar="FILE",
    ),
]


def store_path(given: Path | None) -> Path:
    """The store a user means."""
    if given is not None:
        return given
    if named := os.environ.get("REMASK_STORE"):
        return Path(named)
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(home) / "remask" / "results.db"


def open_store(given: Path | None) -> Store:
    """Open the store a user means, making it if need be."""
    return Store(store_path(given))
