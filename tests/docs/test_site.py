"""What the site is built from: every link leads somewhere, every public name is described."""

import importlib
import inspect
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import remask
from tests.command_line import run_process
from tests.repository import ROOT

PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
API = sorted((ROOT / "docs" / "api").glob("*.md"))
_DESCRIBED = {
    name for page in API for name in re.findall(r"^::: (\S+)", page.read_text("utf-8"), re.M)
}
_FENCE = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"")


def _anchors(page: str) -> set[str]:
    """What GitHub and MkDocs both call the headings of a page."""
    titles = re.findall(r"^#+ (.+)$", _FENCE.sub("", page), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", title.lower()) for title in titles)
    return {re.sub(r"[ ]", "-", title) for title in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page: Path) -> None:
    for found in _LINK.findall(_FENCE.sub("", page.read_text("utf-8"))):
        target = "".join(found)
        if target.startswith(("http:", "https:")):
            continue
        path, _, heading = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        assert file.is_relative_to(ROOT), target
        if heading:
            assert heading in _anchors(file.read_text("utf-8")), target


def test_every_page_is_in_the_navigation() -> None:
    nav = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
    listed = {ROOT / "docs" / name for name in re.findall(r"[\w/-]+\.md$", nav, re.MULTILINE)}
    assert {page for page in PAGES if page.is_relative_to(ROOT / "docs")} == {
        page for page in listed if not page.is_relative_to(ROOT / "docs" / "examples")
    }


def _found(name: str) -> Any:
    """The object of a dotted name, whichever part of it is a module."""
    parts, found = name.split("."), None
    for place, part in enumerate(parts):
        if found is None or not hasattr(found, part):
            found = importlib.import_module(".".join(parts[: place + 1]))
        else:
            found = getattr(found, part)
    return found


@pytest.mark.parametrize("name", sorted(_DESCRIBED))
def test_what_a_page_of_the_api_shows_has_a_docstring_and_so_have_its_members(name: str) -> None:
    found = _found(name)
    assert found.__doc__, name
    if inspect.isclass(found) and found.__module__.startswith("remask"):
        for member, value in list(vars(found).items()):
            value = getattr(value, "__func__", value)
            if not member.startswith("_") and (
                inspect.isfunction(value) or isinstance(value, property)
            ):
                assert value.__doc__, f"{name}.{member}"


def test_every_public_name_is_on_a_page_of_the_api() -> None:
    assert {f"remask.{name}" for name in remask.__all__} <= _DESCRIBED


def test_every_name_that_the_docs_import_or_mention_is_on_a_page_of_the_api() -> None:
    text = "\n".join(page.read_text("utf-8") for page in PAGES if page not in API)
    named = {
        f"{module}.{name}"
        for module, names in re.findall(r"^from (remask[\w.]*) import ([\w, ]+)$", text, re.M)
        for name in names.split(", ")
    }
    named |= set(re.findall(r"`(remask(?:\.[a-z_]+)*\.[A-Za-z_]+)[`(]", text))
    modules = {name.rpartition(".")[0] for name in _DESCRIBED}
    methods = {f"remask.methods.{cls}" for cls in ("ER",)}  # they have pages of their own
    unknown = {
        name
        for name in named - _DESCRIBED - methods
        if name not in modules
        and f"remask.{name.rpartition('.')[2]}" not in _DESCRIBED
        # An attribute of something that is described: remask.Learner.create.
        and name.rpartition(".")[0] not in _DESCRIBED
    }
    assert not unknown


# ---- The site itself ------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    build = (sys.executable, "-m", "mkdocs", "build", "--site-dir", folder)
    run_process(*build, folder=ROOT, environment={"NO_MKDOCS_2_WARNING": "1"})
    return folder


@pytest.mark.integrations
def test_the_site_is_built_without_a_warning_and_asks_no_other_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 60
    for page in pages:
        text = page.read_text("utf-8")
        loaded = re.findall(r'<(?:script|img|link|iframe)[^>]*(?:src|href)="(https?:[^"]*)"', text)
        assert not loaded, page
        assert "arithmatex" not in text, page  # every formula has become MathML


@pytest.mark.integrations
def test_the_search_of_the_site_finds_the_loss_from_a_folder(site: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = os.environ.get("REMASK_CHROMIUM", "/usr/bin/chromium")
    if not Path(chromium).exists():
        pytest.skip("needs Chromium")
    wrong: list[str] = []
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda r: wrong.append(r.url) if r.url.startswith("http") else None)
        page.goto((site / "index.html").as_uri())
        page.locator("input.md-search__input").click()
        page.keyboard.type("masked_cross_entropy")
        first = page.locator(".md-search-result__item").first
        first.wait_for(state="attached")
        assert "api/losses.html" in (first.locator("a").first.get_attribute("href") or "")
        assert page.locator("#logits svg").count() == 2
        browser.close()
    assert not wrong
