"""The page as a file: self-contained, and safe whatever its data contains."""

import json
import re
from html.parser import HTMLParser
from importlib.resources import files
from typing import Any

import pytest

from remask.reports.figures import FIGURES
from remask.reports.history import history_html
from remask.reports.page import page_html
from tests.reports.samples import own_data, report_data, rich_data, trials


class Elements(HTMLParser):
    """Start tags with attributes, and the text of each script, as a browser sees them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] == "script":
            self.scripts[-1] += data


def _embedded(page: str) -> Any:
    return json.loads(Elements(page).scripts[1])


@pytest.mark.parametrize("data", [rich_data(), own_data(), report_data([])])
def test_the_page_contains_its_data(data: dict[str, Any]) -> None:
    assert _embedded(page_html(data)) == json.loads(json.dumps(data))


@pytest.mark.parametrize(
    "text",
    [
        "</script><script>alert(1)</script>",
        "<!--<script>",
        "{{script}}",
        "a\u2028b\u2029c",
        "&lt;",
        'quote " and \\',
        "naïve \U0001f642",
    ],
)
def test_no_text_breaks_out_of_the_data(text: str) -> None:
    data = report_data(trials([50.0]), title=text, store=text)
    data["cells"][0]["label"] = text
    page = page_html(data)

    assert len(Elements(page).scripts) == len(Elements(page_html(report_data([]))).scripts)
    assert _embedded(page)["cells"][0]["label"] == text
    inside = page.partition('id="data">')[2].partition("</script>")[0]
    assert not set(inside) & set("<>&\u2028\u2029")


def test_the_title_is_escaped_and_made_valid_unicode() -> None:
    assert "<title>&lt;/title&gt;&lt;b&gt;</title>" in page_html(
        report_data([], title="</title><b>")
    )
    page = page_html(report_data([], title="caf\udce9", store="caf\udce9.db"))
    assert "<title>caf?</title>" in page
    page.encode()


def test_the_page_refers_to_nothing_outside_itself() -> None:
    page = page_html(rich_data(), refresh_seconds=5)

    assert "://" not in page
    assert not re.search(r"url\(|@import|\bimport\b|\bfetch\(|XMLHttpRequest|sendBeacon", page)
    tags = Elements(page).tags
    for tag, attributes in tags:
        assert "src" not in attributes
        assert (attributes.get("href") or "#")[:1] == "#" or attributes["href"] == "data:,", tag
    (policy,) = [
        a["content"] or "" for _, a in tags if "Content-Security" in str(a.get("http-equiv"))
    ]
    rules = {rule.split()[0]: rule.split()[1:] for rule in policy.split(";")}
    assert rules["default-src"] == ["'none'"]
    assert rules["script-src"] == rules["style-src"] == ["'unsafe-inline'"]
    assert set(rules) == {
        *("default-src", "script-src", "style-src", "img-src"),
        "base-uri",
        "form-action",
    }


def test_every_figure_has_a_place_and_a_caption_on_the_page() -> None:
    tags = Elements(page_html(report_data([]))).tags
    places = [
        attributes["id"] for tag, attributes in tags if tag == "figure" and "id" in attributes
    ]
    assert places == [f"figure-{name}" for name in FIGURES]


def test_templates_use_every_asset_and_scripts_never_turn_text_into_markup() -> None:
    pages = page_html(report_data([])), history_html("pets", [])
    scripts = "\n".join(script for page in pages for script in Elements(page).scripts)
    unsafe = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\("
    assert not re.search(unsafe, scripts)
    assert not re.search(r"\{\{\w+\}\}", pages[0])
    assert len(pages[0]) < 150_000

    assets = [asset for asset in (files("remask.reports") / "assets").iterdir() if asset.is_file()]
    assert len(assets) > 10
    for asset in assets:
        if not asset.name.endswith(".html"):
            assert asset.read_text("utf-8").strip() in "".join(pages), asset.name
