"""What a stack needs on another machine: its data, the user's own code, its checkpoint."""

import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from remask.benchmarks import Benchmark
from remask.durable import make_folder, write_atomically
from remask.own_code import find_source, names_own_code


@dataclass(frozen=True)
class Arrays:
    """A benchmark whose tensors are numpy arrays, which can be mapped from shared memory."""

    fields: Mapping[str, Any]

    @classmethod
    def of(cls, benchmark: Benchmark) -> "Arrays":
        """Take a benchmark apart; nothing is copied."""
        values = {field.name: getattr(benchmark, field.name) for field in fields(benchmark)}
        return cls({name: _as_array(value) for name, value in values.items()})

    def benchmark(self) -> Benchmark:
        """Put it together again; nothing is copied."""
        return Benchmark(**{name: _as_tensor(value) for name, value in self.fields.items()})


def _as_array(value: object) -> object:
    return value.cpu().numpy() if isinstance(value, torch.Tensor) else value


def _as_tensor(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    with warnings.catch_warnings():
        # Shared memory can only be read, and nobody writes into a benchmark.
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(value)


def own_files(names: Iterable[str]) -> dict[str, bytes]:
    """The files of the user's own code that these names need, by path: nothing is imported."""
    files: dict[str, bytes] = {}
    for module in dict.fromkeys(name.partition(":")[0] for name in names if names_own_code(name)):
        source = find_source(module)
        if source is not None:
            files.update(source.files)
    return files


@contextmanager
def importable(files: Mapping[str, bytes], folder: Path) -> Iterator[None]:
    """Have files of the user's own code in a folder where imports look first, while in the block.

    It is the current folder meanwhile: an older copy of a module may lie where the process was
    started. Afterwards their modules are unloaded, since the folder is going to be removed.
    """
    if not files:
        yield
        return
    write_files(folder, files)
    before = Path.cwd()
    sys.path.insert(0, str(folder))
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
        sys.path[:] = [path for path in sys.path if path != str(folder)]
        for name, module in list(sys.modules.items()):
            if Path(getattr(module, "__file__", None) or "").is_relative_to(folder):
                del sys.modules[name]


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files into a folder, by their paths in it, each whole or not at all."""
    for name, content in files.items():
        make_folder((folder / name).parent)
        write_atomically(folder / name, content)


def read_files(paths: Iterable[Path]) -> dict[str, bytes]:
    """What files hold, by their names."""
    return {path.name: path.read_bytes() for path in sorted(paths)}
