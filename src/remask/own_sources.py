"""The source of the user's own code: which files it is in, and a fingerprint of its version.

Sources are read and never run: what a module imports is read off its import statements.
"""

import ast
import hashlib
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import resolve_name
from pathlib import Path


@dataclass(frozen=True)
class Source:
    """The source of a module, and of everything of the user's own that it imports, in turn."""

    file: Path
    """Of the module itself."""
    fingerprint: str
    """A SHA-256 of what is in the files; where they lie does not matter."""
    files: dict[str, bytes]
    """The user's own among the files, by path: written elsewhere, they can be imported there."""


def find_source(module: str) -> Source | None:
    """Read the source of a module; None if there is none to be found."""
    PathFinder.invalidate_caches()  # a file may be newer than what Python remembers of its folder
    contents: dict[str, bytes] = {}
    own_file: Path | None = None
    files: dict[str, bytes] = {}
    waiting = [module]
    for name in waiting:  # which grows meanwhile
        if name in contents or (found := _find(name)) is None or found.origin is None:
            continue
        file = Path(found.origin)
        # The module itself counts wherever it lies; of what it imports, what is the user's own.
        if name != module and not is_own(file):
            continue
        try:
            contents[name] = file.read_bytes()
        except OSError:  # built in, or out of reach: whoever imports it is told
            continue
        own_file = own_file or (file if name == module else None)
        is_package = found.submodule_search_locations is not None
        package = name if is_package else name.rpartition(".")[0]
        if is_own(file):
            stem = name.replace(".", "/")
            files[f"{stem}/{file.name}" if is_package else f"{stem}{file.suffix}"] = contents[name]
        waiting += [*_parents(name), *_imports(contents[name], package)]
    if own_file is None:
        return None
    digest = hashlib.sha256()
    for name, content in sorted(contents.items()):
        digest.update(f"{name} {hashlib.sha256(content).hexdigest()}\n".encode())
    return Source(own_file, digest.hexdigest(), files)


def is_own(file: Path) -> bool:
    """Whether a file is neither remask's, nor Python's, nor of an installed package."""
    libraries = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    not_own = [Path(__file__).parent, *map(Path, libraries)]
    if {"site-packages", "dist-packages"} & set(file.parts):  # of another Python, or of the user
        return False
    return file.is_file() and not any(file.is_relative_to(folder) for folder in not_own)


def _find(module: str) -> ModuleSpec | None:
    """Find a module as an import would, without importing anything, not even its packages."""
    here = str(Path.cwd())
    path = sys.path if here in sys.path else [here, *sys.path]
    spec = None
    for name in module.split("."):
        # By its last name: of a full one, Python wants the packages to be imported.
        spec = PathFinder.find_spec(name, path)
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or [])
    return spec


def _parents(module: str) -> list[str]:
    """`a` and `a.b` of `a.b.c`: importing that imports these."""
    parts = module.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def _imports(source: bytes, package: str) -> Iterator[str]:
    """The modules that a source names in import statements, wherever in it they stand.

    `from a import b` names `a`, and `a.b` in case that is a module.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):  # compiled, or wrong: importing it will tell
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
