"""Names for methods, nets and benchmarks that are given as Python objects.

Worker processes and resumed runs import what a config uses by name.
"""

import sys
from collections.abc import Mapping
from typing import Any

from torch import nn

from remask.data.benchmark import Benchmark, load_benchmark, same_benchmark, save_benchmark
from remask.data.registry import BENCHMARKS
from remask.errors import SettingsError
from remask.methods import METHODS, Method
from remask.nets.builders import NETS
from remask.own_code import names_own_code


def with_names(given: Mapping[str, Any]) -> dict[str, Any]:
    """Replace objects in settings by their names; other values are unchanged."""
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
                f"{value.name} was loaded with other tasks: run it alone, not in a list"
            )
        return name
    if isinstance(value, type) and issubclass(value, Method) and value in METHODS.values():
        return value.name
    if known := [name for name, build in NETS.items() if build is value]:
        return known[0]
    if isinstance(value, nn.Module):
        raise SettingsError(
            f"net is a {type(value).__name__}, but each trial builds its own net: give the class, "
            f"or a function (input_shape, num_classes) that returns a net"
        )
    if not callable(value):
        return value
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if module is None or getattr(sys.modules.get(module), name, None) is not value:
        raise SettingsError(
            f"{kind} = {value!r:.100} cannot be imported by worker processes: define it at the top "
            f"level of a module"
        )
    return f"{module}:{name}"


def _of_benchmark(benchmark: Benchmark) -> tuple[str, dict[str, Any]]:
    """A benchmark's name, and the tasks, order and limit it was loaded with; saves other data."""
    name, asked = benchmark.name, dict(benchmark.asked)
    can_load = name in BENCHMARKS or names_own_code(name)
    if can_load and same_benchmark(benchmark, load_benchmark(name, **asked)):
        return name, asked
    return save_benchmark(benchmark), {}
