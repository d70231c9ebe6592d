"""Checks of a release that need no build; `make package` does the rest."""

import re
import runpy
import tomllib
from fnmatch import fnmatch
from typing import Any

import pytest

from remask import __version__
from tests.repository import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
SETUP = runpy.run_path(str(ROOT / "setup.py"))
README = (ROOT / "README.md").read_text("utf-8")
CITATION = (ROOT / "CITATION.cff").read_text("utf-8")
ADDRESS = "https://example.org/someone/remask"


def test_every_file_in_the_package_that_is_not_python_is_package_data() -> None:
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["remask"]
    package = ROOT / "src" / "remask"
    others = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*")
        if path.is_file() and path.suffix != ".py" and path.parent.name != "__pycache__"
    }
    assert "py.typed" in others
    assert {name for name in others if not any(fnmatch(name, each) for each in patterns)} == set()
    unused = [each for each in patterns if not any(fnmatch(name, each) for name in others)]
    assert unused == []


def test_every_folder_with_code_in_it_is_a_package() -> None:
    package = ROOT / "src" / "remask"
    assert {path.parent for path in package.rglob("*.py")} == {
        path.parent for path in package.rglob("__init__.py")
    }


def test_the_version_has_one_source_and_the_citation_names_it() -> None:
    assert "version" in PROJECT["project"]["dynamic"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "remask.__version__"}
    assert f"\nversion: {__version__}\n" in CITATION


def test_the_links_of_the_readme_lead_to_files_that_exist() -> None:
    links = re.findall(r"]\((?!https?:|#)([^)#]+)", README)
    assert len(links) > 10
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_packaged_readme_has_no_link_or_picture_without_an_address() -> None:
    linked = SETUP["standalone"](README, ADDRESS)
    assert f"]({ADDRESS}/blob/HEAD/docs/learner.md)" in linked
    for text in (linked, SETUP["standalone"](README, None)):
        assert re.findall(r"]\((?!https?:|#)[^)]*\)|<img|<a ", text) == []
    assert SETUP["standalone"]("see [a](b.md)![c](d.svg)", None) == "see a"
    assert SETUP["standalone"]("![c](d.svg)", ADDRESS) == f"![c]({ADDRESS}/raw/HEAD/d.svg)"


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("https://example.org/someone/remask", ADDRESS),
        ("https://user:secret@example.org/someone/remask.git", ADDRESS),
        ("git@example.org:someone/remask.git", ADDRESS),
        ("ssh://git@example.org:22/someone/remask.git", ADDRESS),
        ("../remask", None),
        ("", None),
    ],
)
def test_the_address_of_the_repository_is_git_s_remote(remote: str, address: str | None) -> None:
    assert SETUP["web_address"](remote) == address
    urls = SETUP["project_urls"](address)
    assert all(url.startswith(ADDRESS) for url in urls.values())
    assert bool(urls) == (address is not None)


def _oldest(requirements: list[str]) -> dict[str, tuple[int, ...]]:
    bounds = (each.partition(">=") for each in requirements if ">=" in each)
    return {name: _numbers(version) for name, _, version in bounds}


def _numbers(version: str) -> tuple[int, ...]:
    parts = [int(part) for part in version.split(".")]
    return (*parts, *[0] * (3 - len(parts)))


def test_the_oldest_versions_tested_are_the_oldest_allowed() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    allowed = _oldest(PROJECT["project"]["dependencies"])
    for extra in ("images", "parquet", "report", "test"):
        allowed |= _oldest(extras[extra])
    lines = (ROOT / "constraints-oldest.txt").read_text("utf-8").splitlines()
    pinned = dict(line.partition(" ")[0].split("==") for line in lines if "==" in line)
    tested = {name: _numbers(version) for name, version in pinned.items() if name in allowed}
    del allowed["torch"], tested["torch"]  # the file has the tested torch, and the reason
    assert tested == allowed


def test_install_lines_work_as_they_stand() -> None:
    """Outside a clone, pip finds no `remask[...]`: pages name the packages themselves."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    lines = [
        (page.name, line)
        for page in pages
        for line in page.read_text("utf-8").splitlines()
        if re.search(r"pip install[^`]*remask\[", line)
    ]
    assert lines == []
