"""Starting points for a custom method, net or dataset, as files that work unchanged.

Each is a module of this package, so it is linted and tested like all other code. A copy gets the
name that the user chose.
"""

import importlib.util
import keyword
import re
from dataclasses import dataclass
from pathlib import Path

from remask.errors import SettingsError, UnknownNameError, unknown
from remask.files import AnyPath, refusal

__all__ = ["KINDS", "StartingPoint", "write_starting_point"]

_CHECKS = {
    "method": "remask check {name}",
    "net": "remask check er --net {name}",
    "data": "remask check er --benchmark {name}",
}
KINDS = tuple(_CHECKS)
_NAME = re.compile(r"[a-z][a-z0-9_]{0,99}")


@dataclass(frozen=True)
class StartingPoint:
    """A written file."""

    file: Path
    name: str
    """`module:name`, as commands take it."""
    check: str
    """The command that checks it."""


def write_starting_point(kind: str, name: str, folder: AnyPath = ".") -> StartingPoint:
    """Write a commented `method`, `net` or `data` to NAME.py, without replacing a file.

    Raises SettingsError if the name is invalid or taken, DurabilityError if writing fails.
    """
    if kind not in KINDS:
        raise UnknownNameError(unknown("kind of starting point", kind, KINDS))
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise SettingsError(
            f"invalid module name {name!r}: use lower-case letters, digits and _, as in my_{kind}"
        )
    file = Path(folder) / f"{name}.py"
    if not file.exists() and importlib.util.find_spec(name) is not None:
        raise SettingsError(
            f"there is already a Python module {name!r}. Choose another name, such as my_{name}."
        )
    class_name = "".join(part.capitalize() for part in name.split("_"))
    text = (Path(__file__).parent / f"{kind}.py").read_text("utf-8")
    text = text.replace("StartingPoint", class_name).replace("starting_point", name)
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise SettingsError(f"{file} already exists, and was not changed.") from None
    except OSError as error:
        raise refusal("write", file, error) from error
    own_name = f"{name}:{class_name if kind == 'method' else name}"
    return StartingPoint(file, own_name, _CHECKS[kind].format(name=own_name))
