"""Methods, nets and benchmarks that are given as objects in Python: the names to find them by.

A config names what it uses, because worker processes and resumed runs import it by name.
"""

import sys
from collections.abc import Mapping
from typing import Any

from torch import nn

from remask.benchmarks import BENCHMARKS, Benchmark, load_benchmark
from remask.benchmarks.saved import same_benchmark, save_benchmark
from remask.errors import SettingsError
from remask.methods import METHODS, Method
from remask.nets import NETS
from remask.own_code import names_own_code


def with_names(given: Mapping[str, Any]) -> dict[str, Any]:
    """Replace objects among these settings by their names; strings and all else stay."""
    settings = dict(given)
    for kind in ("benchmark", "method", "net"):
        value = settings.get(kind)
        if isinstance(value, Benchmark):
            name, asked = _of_benchmark(value)
            settings = {**asked, **settings, kind: name}
        elif isinstance(value, list | tuple):
            settings[kind] = [_name(kind, each) for each in value]
        elif value is not None:
            settings[kind] = _name(kind, value)
    return settings


def _name(kind: str, value: Any) -> Any:
    if isinstance(value, Benchmark):
        name, asked = _of_benchmark(value)
        if asked:
            raise SettingsError(
                f"{value.name} has tasks of its own: run it alone, not in a list of benchmarks"
            )
        return name
    if isinstance(value, type) and issubclass(value, Method) and value in METHODS.values():
        return value.name
    if known := [name for name, build in NETS.items() if build is value]:
        return known[0]
    if isinstance(value, nn.Module):
        raise SettingsError(
            f"net is a {type(value).__name__}, but each trial builds a net of its own: give the "
            f"class, or a function (input_shape, num_classes) that returns a net"
        )
    if not callable(value):
        return value
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if module is None or getattr(sys.modules.get(module), name, None) is not value:
        raise SettingsError(
            f"{kind} = {value!r:.100} cannot be imported by worker processes: define it at the top "
            f"level of a module, a file of its own"
        )
    return f"{module}:{name}"


def _of_benchmark(benchmark: Benchmark) -> tuple[str, dict[str, Any]]:
    """Its name and how its tasks were asked for; if they lead to other data, those of a copy."""
    name, asked = benchmark.name, dict(benchmark.asked)
    by_name = load_benchmark(name, **asked) if _can_load(name) else None
    if by_name is not None and same_benchmark(benchmark, by_name):
        return name, asked
    return save_benchmark(benchmark), {}


def _can_load(name: str) -> bool:
    return name in BENCHMARKS or names_own_code(name)
