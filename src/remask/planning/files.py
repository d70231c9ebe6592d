"""Settings in files: reading them, and not running code because a file says so."""

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from remask.durable import AnyPath, read_limited
from remask.errors import SettingsError
from remask.own_code import names_own_code
from remask.setting_types import INT64

_LARGEST_CONFIG = 1_000_000


def read_config(path: AnyPath) -> dict[str, Any]:
    """The settings in a TOML file."""
    path = Path(path)
    try:
        text = read_limited(path, _LARGEST_CONFIG).decode()
        settings = tomllib.loads(text)
    except OSError as error:
        raise SettingsError(f"the config file {path} cannot be read: {error.strerror}") from None
    except RecursionError:
        raise SettingsError(f"the config file {path} is nested too deeply to be one") from None
    except ValueError as error:  # tomllib's own, and Python's for a number of thousands of digits
        raise SettingsError(f"the config file {path} is not valid TOML: {error}") from None
    _refuse_giants(path, settings)
    return settings


def check_trusted(names: Iterable[str], trusted: Iterable[str]) -> None:
    """Refuse names of the user's own code that are not among those trusted.

    Nothing that is read from a file may run code, unless the user says so.
    """
    trusted = set(trusted)
    for name in names:
        if names_own_code(name) and name not in trusted:
            raise SettingsError(
                f"a file names code to import, {name!r}, and importing runs it. If it is yours, "
                f"say --own-code, or name it on the command line yourself."
            )


def _refuse_giants(path: Path, value: object) -> None:
    """Refuse numbers that no setting can be: Python would not even write the largest of them."""
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            _refuse_giants(path, part)
    elif isinstance(value, int) and not -INT64 <= value < INT64:
        raise SettingsError(f"the config file {path} has a number beyond 64 bits")
