"""Packages whose names are imported when they are used, so that nobody waits for the others."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package: `modules` has the names that each of its modules defines.

    Also gives the package a `__dir__`, so that notebooks and editors complete these names.

    A package that uses it also imports the names under `if TYPE_CHECKING`, for type checkers, and
    defines `__getattr__` under `if not TYPE_CHECKING`: otherwise they would take every name for one
    of the package's.
    """
    homes = {name: module for module, names in modules.items() for name in names.split()}

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, found)  # so it is looked for once
        return found

    vars(sys.modules[package])["__dir__"] = lambda: sorted({*vars(sys.modules[package]), *homes})
    return find
