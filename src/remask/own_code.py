"""Code of the user's own, named `module:name`, as in `--net mynets:build`.

Only what a user names is ever imported: names that were read from a file need a word from the
user first, since importing a module runs it.
"""

import importlib
import re
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from remask.errors import RemaskError
from remask.own_sources import find_source, is_own

_NAME = re.compile(r"[^\W\d][\w.]*:[^\W\d]\w*")


_fingerprints: dict[str, str | None] = {}
"""Of the modules that were imported here, as they were then."""


class OwnCodeError(RemaskError):
    """The user's own code cannot be used; the message says which, where and why."""


def names_own_code(name: str) -> bool:
    """Whether this is a `module:name`, rather than the name of something of remask's."""
    return _NAME.fullmatch(name) is not None


def import_own(kind: str, name: str) -> Any:
    """Import what `name` names, looking in the current folder first. Raises OwnCodeError."""
    module_name, _, attribute = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    if module_name not in sys.modules or module_name not in _fingerprints:
        # Of what is about to run; by the time it has run, the file may be another one.
        source = find_source(module_name)
        _fingerprints[module_name] = None if source is None else source.fingerprint
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise failure_of(f"the module of the {kind} {name!r}", error) from error
        raise OwnCodeError(
            f"the {kind} {name!r} is not there: no module {error.name!r} in {here} or installed"
        ) from error
    except (Exception, SystemExit) as error:
        raise failure_of(f"the module of the {kind} {name!r}", error) from error
    try:
        return getattr(module, attribute)
    except AttributeError as error:
        folders = getattr(module, "__path__", [])  # a folder without __init__.py has no file
        place = getattr(module, "__file__", None) or next(iter(folders), f"module {module_name}")
        raise OwnCodeError(
            f"the {kind} {name!r} is not there: {place} has no {attribute!r}"
        ) from error


def own_title(method: str) -> str | None:
    """The title of a custom method, if it was imported; imports nothing itself."""
    module, _, name = method.partition(":")
    title = getattr(getattr(sys.modules.get(module), name, None), "title", None)
    return title if isinstance(title, str) else None


def fingerprints_of(names: Iterable[str]) -> dict[str, str]:
    """The fingerprints of own code that was imported, by module; other names have none."""
    modules = (name.partition(":")[0] for name in names if names_own_code(name))
    return {module: found for module in modules if (found := _fingerprints.get(module))}


def failure_of(what: str, error: BaseException) -> OwnCodeError:
    """The error of a user's code, as a message that leads them to the line."""
    return OwnCodeError(f"{what} failed: {type(error).__name__}: {error}{own_place(error)}")


def own_place(error: BaseException) -> str:
    """Where in the user's own code an error arose, ` (at FILE:LINE)`; empty if nowhere there."""
    places = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        places.append((error.filename, error.lineno))
    own = [(file, line) for file, line in places if is_own(Path(file))]
    return " (at {}:{})".format(*own[-1]) if own else ""
