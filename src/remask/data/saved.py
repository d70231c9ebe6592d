"""Benchmarks that were passed to `remask.run` as objects, stored as files.

Worker processes and resumed runs load a benchmark by name, so an object is written to the data
folder once. Its name is `remask.data.saved:NAME_DIGEST`: each is an attribute of this module,
a function without arguments, as for any custom benchmark.
"""

import hashlib
import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import safetensors.torch

from remask.data.benchmark import Benchmark
from remask.data.cache import data_folder
from remask.data.originals import DataError
from remask.files import make_folder, open_regular, write_atomically

_TENSORS = ("train_inputs", "train_labels", "test_inputs", "test_labels")
_SETTINGS = ("tasks", "scale", "mean", "std", "crop_padding", "flip", "class_names")
_NAME = re.compile(r"[a-z]\w*_[0-9a-f]{16}")
_DIGITS = 16


def save_benchmark(benchmark: Benchmark) -> str:
    """Store a benchmark, and return the name to load it by: `module:name`."""
    data = safetensors.torch.save(
        {name: getattr(benchmark, name).cpu().contiguous() for name in _TENSORS},
        {"remask": json.dumps({name: getattr(benchmark, name) for name in _SETTINGS})},
    )
    words = re.sub(r"\W+", "_", benchmark.name.casefold()).strip("_")[:60]
    digest = hashlib.sha256(data).hexdigest()[:_DIGITS]
    name = f"{words if words[:1].isalpha() else f'own_{words}'}_{digest}"
    if not _path(name).exists():
        make_folder(_path(name).parent)
        write_atomically(_path(name), data, private=True)
    return f"{__name__}:{name}"


def same_benchmark(one: Benchmark, other: Benchmark) -> bool:
    """Whether two benchmarks have the same samples, tasks and preprocessing."""
    return all(getattr(one, name) == getattr(other, name) for name in _SETTINGS) and all(
        getattr(one, name).shape == getattr(other, name).shape
        and bool((getattr(one, name) == getattr(other, name)).all())
        for name in _TENSORS
    )


def _path(name: str) -> Path:
    return data_folder() / "own" / f"{name}.safetensors"


def _load(name: str) -> Benchmark:
    path = _path(name)
    try:
        with open_regular(path) as stream:
            data = stream.read()
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror}. Pass the benchmark to remask.run again."
        ) from error
    if hashlib.sha256(data).hexdigest()[:_DIGITS] != name[-_DIGITS:]:
        raise DataError(f"{path} is damaged. Remove it, and pass the benchmark to remask.run again")
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    settings = json.loads(header["__metadata__"]["remask"])
    fields: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()
    }
    return Benchmark(name=name, **{**fields, **safetensors.torch.load(data)})


def __getattr__(name: str) -> Callable[[], Benchmark]:
    if _NAME.fullmatch(name) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return partial(_load, name)
