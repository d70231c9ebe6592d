"""Where results are kept unless somebody says otherwise."""

import os
from pathlib import Path

from remask.durable import AnyPath
from remask.results.errors import StoreError


def store_path(given: AnyPath | None = None) -> Path:
    """The store that is meant: the one given, else $REMASK_STORE, else one in the home folder."""
    path = Path(given) if given is not None else _usual_store()
    try:
        str(path).encode()
    except UnicodeEncodeError:  # it would have to be written to files that are UTF-8
        raise StoreError(
            f"the store's path {path} is not valid UTF-8. Rename what is not, or choose another."
        ) from None
    return path


def _usual_store() -> Path:
    if named := os.environ.get("REMASK_STORE"):
        return Path(named)
    if home := os.environ.get("XDG_DATA_HOME"):
        return Path(home) / "remask" / "results.db"
    try:
        return Path.home() / ".local" / "share" / "remask" / "results.db"
    except RuntimeError:
        raise StoreError(
            "there is no home folder to keep results in: say --store FILE, or set REMASK_STORE"
        ) from None
