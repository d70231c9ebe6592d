"""Public functions accept paths as text, Path, or os.PathLike."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import remask
from remask import Learner, Store
from remask.data.user_data import arrays
from remask.store import export, read_export
from tests.store.store_samples import make_config, make_record

INPUTS = np.arange(40, dtype=np.uint8).reshape(10, 1, 2, 2)
LABELS = np.arange(10) % 2
# Types that remask creates; users do not.
RECORDS = {
    *("BenchmarkInfo", "Dataset", "FileStatus", "Listing", "Run", "RunOptions", "StartingPoint"),
    *("StoreMovedError", "Work", "Written", "list_images"),
}


class Somewhere:
    """A path-like object that is not a Path, such as a temporary file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __fspath__(self) -> str:
        return str(self._path)


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


@pytest.mark.thorough
@pytest.mark.parametrize("given", [str, Somewhere])
def test_text_and_path_like_objects_name_the_same_files(
    given: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, elsewhere = tmp_path / "named", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    with Store(given(folder / "results.db")) as store:
        store.add(make_record(make_config()))
    assert remask.report(given(folder / "page.html"), store=given(folder / "results.db")).page == (
        folder / "page.html"
    )
    export([make_record(make_config())], "json", given(folder / "trials.json"))
    assert len(read_export(given(folder / "trials.json"))) == 1
    np.save(folder / "x.npy", INPUTS)
    np.save(folder / "y.npy", LABELS)
    pair = (given(folder / "x.npy"), given(folder / "y.npy"))
    assert len(arrays(pair, test=pair, tasks=2).test_labels) == 10
    learner = Learner.create(given(folder / "learner"), memory=20, epochs=1, mask=-1.0)
    learner.learn(INPUTS, LABELS.tolist(), name="first")
    learner.export(given(folder / "net.safetensors"), to="safetensors")
    assert (folder / "net.safetensors").exists()
    assert not list(elsewhere.iterdir())
