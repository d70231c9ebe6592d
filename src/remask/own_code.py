"""The user's own code, named `module:name` as in `--net mynets:build`: import, sources, versions.

Importing a module runs it, so only what a user names is imported. A name that was read from a file
needs the user's consent. Sources are parsed for their imports and never run.
"""

import ast
import hashlib
import importlib
import re
import sys
import sysconfig
import traceback
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import resolve_name
from pathlib import Path
from typing import Any

from remask.errors import RemaskError, SettingsError

_NAME = re.compile(r"[^\W\d][\w.]*:[^\W\d]\w*")
_fingerprints: dict[str, str | None] = {}
"""Fingerprints of the modules imported in this process, taken at import."""


class OwnCodeError(RemaskError):
    """The user's own code cannot be used; the message says which, where and why."""


@dataclass(frozen=True)
class OwnSource:
    """The source of a module and of the user's own modules that it imports, directly or not."""

    file: Path
    """The file of the module itself."""
    fingerprint: str
    """SHA-256 of the files' contents, independent of their location."""
    files: dict[str, bytes]
    """The user's own files by import path; written to another folder, they can be imported."""


def names_own_code(name: str) -> bool:
    """Whether `name` has the form `module:name`."""
    return _NAME.fullmatch(name) is not None


def check_trusted(names: Iterable[str], trusted: Collection[str]) -> None:
    """Refuse `module:name`s that were read from a file, unless they are `trusted`."""
    for name in names:
        if names_own_code(name) and name not in trusted:
            raise SettingsError(
                f"a file names code to import, {name!r}, and importing runs it. If you trust it, "
                f"use own_code (--own-code), or give the name yourself."
            )


def import_own(kind: str, name: str) -> Any:
    """Import `module:name`, searching the current folder first. Raises OwnCodeError."""
    module_name, _, attribute = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    if module_name not in sys.modules or module_name not in _fingerprints:
        # Before the import: the file may change while it runs.
        source = find_source(module_name)
        _fingerprints[module_name] = None if source is None else source.fingerprint
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise failure_of(f"the module of the {kind} {name!r}", error) from error
        raise OwnCodeError(
            f"{kind} {name!r} not found: no module {error.name!r} in {here} or installed"
        ) from error
    except (Exception, SystemExit) as error:
        raise failure_of(f"the module of the {kind} {name!r}", error) from error
    try:
        return getattr(module, attribute)
    except AttributeError as error:
        place = getattr(module, "__file__", None) or f"module {module_name}"
        raise OwnCodeError(f"{kind} {name!r} not found: {place} has no {attribute!r}") from error


def own_title(method: str) -> str | None:
    """The title of a custom method, if it was imported; imports nothing."""
    module, _, name = method.partition(":")
    title = getattr(getattr(sys.modules.get(module), name, None), "title", None)
    return title if isinstance(title, str) else None


def fingerprints_of(names: Iterable[str]) -> dict[str, str]:
    """The fingerprints of imported own code by module; other names are skipped."""
    modules = (name.partition(":")[0] for name in names if names_own_code(name))
    return {module: found for module in modules if (found := _fingerprints.get(module))}


def failure_of(what: str, error: BaseException) -> OwnCodeError:
    """An error of the user's code, with its file and line."""
    return OwnCodeError(f"{what} failed: {type(error).__name__}: {error}{own_place(error)}")


def own_place(error: BaseException) -> str:
    """Where in the user's own code an error was raised, ` (at FILE:LINE)`, or an empty string."""
    places = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        places.append((error.filename, error.lineno))
    own = [(file, line) for file, line in places if _is_own(Path(file))]
    return " (at {}:{})".format(*own[-1]) if own else ""


def find_source(module: str) -> OwnSource | None:
    """Read the source of a module; None if it is not found."""
    PathFinder.invalidate_caches()  # a file may be newer than Python's listing of its folder
    contents: dict[str, bytes] = {}
    files: dict[str, bytes] = {}
    module_file: Path | None = None
    queue = [module]
    for name in queue:  # grows during the loop
        if name in contents or (found := _find(name)) is None or found.origin is None:
            continue
        file = Path(found.origin)
        # The module itself counts wherever it is; of its imports, only the user's own.
        if name != module and not _is_own(file):
            continue
        try:
            contents[name] = file.read_bytes()
        except OSError:  # built in, or unreadable: the import reports it
            continue
        if name == module:
            module_file = file
        is_package = found.submodule_search_locations is not None
        if _is_own(file):
            stem = name.replace(".", "/")
            files[f"{stem}/{file.name}" if is_package else f"{stem}{file.suffix}"] = contents[name]
        parts = name.split(".")
        queue += [".".join(parts[:count]) for count in range(1, len(parts))]
        queue += _imports(contents[name], name if is_package else name.rpartition(".")[0])
    if module_file is None:
        return None
    digest = hashlib.sha256()
    for name, content in sorted(contents.items()):
        digest.update(f"{name} {hashlib.sha256(content).hexdigest()}\n".encode())
    return OwnSource(module_file, digest.hexdigest(), files)


@cache
def _library_folders() -> list[Path]:
    paths = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    return [Path(__file__).parent, *map(Path, paths)]


def _is_own(file: Path) -> bool:
    """Whether a file belongs neither to remask, nor to Python, nor to an installed package."""
    if {"site-packages", "dist-packages"} & set(file.parts):  # also of another Python
        return False
    return file.is_file() and not any(file.is_relative_to(folder) for folder in _library_folders())


def _find(module: str) -> ModuleSpec | None:
    """Find a module as an import would, without importing its packages."""
    here = str(Path.cwd())
    path = sys.path if here in sys.path else [here, *sys.path]
    spec = None
    for name in module.split("."):
        # By its last part: for a dotted name, Python would import the packages.
        spec = PathFinder.find_spec(name, path)
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or [])
    return spec


def _imports(source: bytes, package: str) -> Iterator[str]:
    """The modules named in import statements; `from a import b` yields `a` and `a.b`."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):  # compiled or invalid: the import reports it
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            try:
                base = resolve_name("." * node.level + (node.module or ""), package)
            except ImportError:  # beyond the outermost package
                continue
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")
