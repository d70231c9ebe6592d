"""Packages that import their names on first use, because importing torch takes seconds."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package: `modules` has the names that each module defines.

    Also sets the `__dir__` of the package, for completion. The package must import the names under
    `if TYPE_CHECKING`, and define `__getattr__` under `if not TYPE_CHECKING`.
    """
    homes = {name: module for module, names in modules.items() for name in names.split()}

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, found)
        return found

    vars(sys.modules[package])["__dir__"] = lambda: sorted({*vars(sys.modules[package]), *homes})
    return find
