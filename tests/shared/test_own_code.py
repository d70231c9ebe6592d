"""The source of the user's own code, and the fingerprint of its version."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from remask.own_code import find_source

Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write files, by name, into the current folder, which is made for the test."""
    folder = tmp_path / "code"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def make(**files: str) -> None:
        for name, text in files.items():
            path = folder / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return make


def _fingerprint(module: str) -> str:
    source = find_source(module)
    assert source is not None
    return source.fingerprint


@pytest.mark.parametrize(
    "statement",
    [
        "import lib",
        "import lib as other",
        "from lib import thing",
        "from lib import *",
        "def later():\n    import lib",
        "if True:\n    from lib import thing",
        "import between",
        "import package.deep.leaf",
        "from package.deep import leaf",
        "import package.relative",
        "import package.climbing",
        "import circle",
    ],
)
def test_a_change_in_what_is_imported_is_another_fingerprint(write: Write, statement: str) -> None:
    write(
        first=statement,
        lib="thing = 1",
        between="import lib",
        circle="import first, lib",
        **{
            "package/deep/leaf": "import lib",
            "package/relative": "from .deep import leaf",
            "package/sub/climber": "from ..deep.leaf import lib",
            "package/climbing": "from . import sub\nfrom .sub import climber",
        },
    )
    before = _fingerprint("first")
    write(unrelated="import lib")
    assert _fingerprint("first") == before
    write(lib="thing = 2")
    after = _fingerprint("first")
    assert after != before
    write(lib="thing = 1")
    assert _fingerprint("first") == before


def test_the_package_around_a_module_counts(write: Write) -> None:
    write(**{"package/__init__": "", "package/leaf": ""})
    before = _fingerprint("package.leaf")
    write(**{"package/__init__": "import os"})
    assert _fingerprint("package.leaf") != before


def test_moved_code_is_equal(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(first="import lib", lib="")
    before = _fingerprint("first")
    (tmp_path / "code").rename(tmp_path / "moved")
    monkeypatch.chdir(tmp_path / "moved")
    assert _fingerprint("first") == before


def test_nothing_is_run_and_nothing_of_python_s_or_of_installed_packages_is_read(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "lib" / "site-packages"
    installed.mkdir(parents=True)
    (installed / "elsewhere.py").write_text("version = 1")
    monkeypatch.syspath_prepend(str(installed))
    write(first="import json, torch, remask, elsewhere\nraise SystemExit('imported')")
    before = _fingerprint("first")
    (installed / "elsewhere.py").write_text("version = 2")
    assert _fingerprint("first") == before
    assert "first" not in sys.modules
    assert "elsewhere" not in sys.modules


@pytest.mark.parametrize("text", ["def broken(:", "import \0", "from ... import beyond", "\udcff"])
def test_a_module_that_cannot_be_read_as_python_still_has_a_fingerprint(
    write: Write, tmp_path: Path, text: str
) -> None:
    write(first="")
    empty = _fingerprint("first")
    (tmp_path / "code" / "first.py").write_bytes(text.encode(errors="surrogateescape"))
    assert _fingerprint("first") != empty


def test_what_has_no_source_has_no_fingerprint(write: Write) -> None:
    write(**{"package/leaf": ""})
    assert find_source("nowhere") is None
    assert find_source("nowhere.at.all") is None
    assert find_source("package") is None  # a folder without __init__.py
    assert find_source("sys") is None
