"""Public functions accept paths as text, Path, or os.PathLike."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import remask

# Types that remask creates; users do not.
RECORDS = {
    *("BenchmarkInfo", "Dataset", "FileStatus", "Listing", "Run", "RunOptions", "StartingPoint"),
    *("StoreMovedError", "Work", "Written", "list_images"),
}


def public_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every function and class in the `__all__` of a package."""
    packages = [found for found in pkgutil.iter_modules(remask.__path__) if found.ispkg]
    for package in ["remask", *(f"remask.{found.name}" for found in packages)]:
        module = importlib.import_module(package)
        for name in getattr(module, "__all__", ()):
            if callable(getattr(module, name)):
                yield name, getattr(module, name)


def test_no_public_function_accepts_only_path_objects() -> None:
    found = set()
    for name, function in public_functions():
        try:
            parameters = inspect.signature(function).parameters.values()
        except ValueError:  # an alias of a type
            continue
        for parameter in parameters:
            hint = inspect.formatannotation(parameter.annotation)
            if "Path" in hint and name not in RECORDS:
                found.add(name)
                assert "os.PathLike" in hint, f"{name}: {parameter}"
                assert "str" in hint, f"{name}: {parameter}"
    assert {"run", "report", "Store", "arrays", "load_benchmark", "load_net"} <= found
