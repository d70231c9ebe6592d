"""The page in a browser: only what a browser can show."""

import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import numpy as np
import pytest

from remask.reports.history import history_html
from remask.reports.measures import TTest, t_test
from remask.reports.page import page_html
from tests.reports.samples import HOSTILE, own_data, report_data, rich_data, trials
from tests.reports.test_history import VISITS

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

sync_api = pytest.importorskip("playwright.sync_api")

_CHROMIUM = os.environ.get("REMASK_CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(_CHROMIUM is None, reason="no Chromium found; REMASK_CHROMIUM can name one"),
]
_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"]
MINUS, MISSING = "\N{MINUS SIGN}", "\N{EN DASH}"  # as the page writes them
DIALOG_IS_OPEN = "document.querySelector('dialog').open"
TIP_IS_HIDDEN = "document.getElementById('tip').hidden"
TIMERS_BY_HAND = """(() => {
    let last = 0;
    const timers = window.timers = new Map();
    window.setTimeout = (call, delay) => { timers.set(++last, { call, delay }); return last; };
    window.clearTimeout = (id) => timers.delete(id);
})();"""
"""A script for pages with timers, so that none fires unless the test calls it."""

Open = Callable[..., "Page"]


@pytest.fixture(scope="session")
def context() -> Iterator["BrowserContext"]:
    """One for all tests, since it is slow to create."""
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_CHROMIUM, args=_ARGUMENTS)
        context = browser.new_context(reduced_motion="reduce")
        context.set_default_timeout(30_000)  # only failures take long
        yield context
        browser.close()


@pytest.fixture
def show(context: "BrowserContext", tmp_path: Path) -> Iterator[Open]:
    """Opens data as a page from a file; it must neither log nor request anything."""
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda r: complaints.extend([r.url] * (r.url[:5] != "file:")))

    def show(
        data: dict[str, Any] | str,
        address: str = "",
        *,
        width: int = 1280,
        dark: bool = False,
        refresh_seconds: float | None = None,
        script: str = "",
    ) -> "Page":
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme="dark" if dark else "light")
        page.add_init_script(script)
        path = tmp_path / "page.html"
        text = data if isinstance(data, str) else page_html(data, refresh_seconds=refresh_seconds)
        path.write_text(text, encoding="utf-8")
        page.goto("about:blank")
        page.goto(f"{path.as_uri()}{address}")
        return page

    yield show
    page.close()
    assert complaints == []


def shown(page: "Page", column: int = 0) -> list[str]:
    """The visible text of a column of the table of results."""
    return [row.split("\t")[column] for row in rows(page)]


def rows(page: "Page") -> list[str]:
    found: list[str] = page.eval_on_selector_all(
        ".results tbody tr[data-cell]",
        """rows => rows.map(row => [...row.cells].map(cell =>
            (cell.querySelector('.ours, a, .badge') ?? cell).innerText).join('\\t'))""",
    )
    return found


def hover(page: "Page", mark: str, *expected: str) -> None:
    """Point at the middle of a mark, and wait for a tip with the expected texts."""
    target = page.locator(mark).first
    target.scroll_into_view_if_needed()
    box = target.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tip = "document.getElementById('tip')"
    until(page, f"!{tip}.hidden && {json.dumps(expected)}.every(t => {tip}.innerText.includes(t))")


def until(page: "Page", condition: str) -> None:
    """Wait for a condition. Playwright's own way needs eval, which the page forbids."""
    for _ in range(1500):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(20)
    raise AssertionError(f"never true: {condition}")


def heading(page: "Page", name: str) -> Any:
    return page.locator(f'.results th[data-key="{name}"]')


def id_of(data: dict[str, Any], label: str, buffer: int = 200) -> str:
    (found,) = [c["id"] for c in data["cells"] if (c["label"], c["buffer"]) == (label, buffer)]
    return str(found)


def texts(found: Any) -> list[str]:
    return [" ".join(text.split()) for text in found.all_inner_texts()]


# The head of the page


def test_the_overview_counts_cells_trials_verdicts_and_runs(show: Open) -> None:
    data = rich_data()
    page = show(data)

    assert page.title() == page.locator("h1").inner_text() == "Toy results"
    facts = dict(zip(*(texts(page.locator(f".facts {tag}")) for tag in ("dt", "dd")), strict=True))
    assert (facts["cells with results"], facts["finished trials"]) == ("8", "22")
    assert facts["failed or diverged"] == "2"
    counts = {name: count for name, count in data["counts"].items() if count}
    assert texts(page.locator(".verdicts .badge")) == list(counts)
    assert texts(page.locator(".verdict-count")) == list(map(str, counts.values()))
    verdicts = page.locator("#verdicts").inner_text()
    assert f"{data['near']} of the" in verdicts
    assert f"about {data['by_chance']} expected by chance." in verdicts
    assert page.locator("progress").evaluate("bar => [bar.value, bar.max]") == [3, 10]
    assert "toy.db" in page.locator("#provenance").inner_text()


def test_a_statement_shows_both_findings_and_opens_to_its_evidence(show: Open) -> None:
    page = show(rich_data())
    statement = page.locator(".statement", has_text="MSDER++(-1) beats DER++ at buffer 200")

    assert texts(statement.locator("summary .badge")) == ["holds", "holds"]
    assert not statement.locator("table").is_visible()
    statement.locator("summary").click()
    (evidence,) = texts(statement.locator("tbody"))
    assert "MSDER++(-1) 88.00 ±0.82 (3 trials)" in evidence
    assert "DER++ 85.00 ±0.82 (3 trials)" in evidence
    assert "paired, 3 seeds" in evidence


def test_unpublished_results_have_no_verdicts_and_an_empty_store_no_table(show: Open) -> None:
    page = show(own_data())
    assert not page.locator("#statements").is_visible()
    assert not page.get_by_role("link", name="Statements").is_visible()
    assert page.locator(".verdicts").count() == 0
    assert not page.locator("#figure-mask-sweep").is_visible()
    assert page.locator("#figures figure:visible").count() > 2

    page = show(report_data([], running=[{"name": "first", "done": 0, "trials": 5}]))
    assert page.locator("#nothing").is_visible()
    assert not page.locator("#figures").is_visible()
    assert "0 of 5 trials" in page.locator(".running").inner_text()
    assert page.get_by_role("heading", name="Unfinished runs").is_visible()  # perhaps stopped


def test_compressed_data_is_shown(show: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    data = own_data()
    data["cells"][0]["label"] = "na\u00efve \U0001f642"
    data["looks"]["na\u00efve \U0001f642"] = data["looks"]["ER"]
    plain = rows(show(data))
    monkeypatch.setattr("remask.reports.page._LARGEST_PLAIN", 0)
    assert "na\\u00efve" not in page_html(data)

    page = show(data)
    page.wait_for_selector(".results tbody tr[data-cell]")
    assert len(plain) == 4
    assert rows(page) == plain


# The table


def test_columns_sort_as_numbers_with_missing_ones_last(show: Open) -> None:
    page = show(rich_data(), width=1600)
    button = heading(page, "class_il_A_T").locator("button")

    def sorted_by() -> tuple[str | None, list[str]]:
        order = heading(page, "class_il_A_T").get_attribute("aria-sort")
        return order, [text.split()[0] for text in shown(page, 4)]

    button.click()
    means = ["88.00", "86.00", "85.00", "84.00", "80.00", "50.00", "20.00", "9.50"]
    assert sorted_by() == ("descending", [*means, MISSING, MISSING])
    button.click()
    assert sorted_by() == ("ascending", [*reversed(means), MISSING, MISSING])
    button.click()
    assert sorted_by()[0] == "none"
    heading(page, "class_il_F_T").locator("button").focus()
    page.keyboard.press("Enter")
    assert shown(page, 5)[0].startswith("0.00")  # the least forgetting first


def test_filters_combine_and_can_be_cleared(show: Open) -> None:
    page = show(rich_data())

    page.locator("#filter-experiment").select_option("main")
    assert len(rows(page)) == 6
    page.locator("#filter-buffer").select_option("200")
    assert sorted(shown(page, 1)) == ["DER++", "ER", "MSDER++(-1)", "MSDER++(-inf)", "MSER(-inf)"]
    page.locator("#filter-text").fill("DER -INF")
    assert shown(page, 1) == ["MSDER++(-inf)"]
    assert page.locator("#shown").inner_text() == "1 of 10 cells"
    page.locator("#filter-verdict").select_option("not run")
    assert shown(page, 1) == []
    assert page.locator("#nothing").is_visible()
    page.locator("#clear").click()
    assert len(rows(page)) == 10
    assert page.locator("#filter-text").input_value() == ""


def test_rows_are_grouped_and_the_best_and_its_equals_are_marked(show: Open) -> None:
    page = show(own_data())

    def marked(kind: str) -> list[str]:
        found: list[str] = page.eval_on_selector_all(
            f".results td.measure:nth-child(4) .{kind}",
            "all => all.map(one => one.closest('tr').cells[0].textContent)",
        )
        return found

    first_words = [text.split(" ")[0] for text in texts(page.locator(".results tbody tr"))]
    assert first_words == ["buffer", "DER++", "ER", "MSER(-inf)", "buffer", "ER"]
    assert marked("best") == ["DER++"]  # 76.25; at the larger buffer there is only one
    assert marked("alike") == ["MSER(-inf)"]  # 76.00
    heading(page, "class_il_A_T").locator("button").click()
    assert page.locator(".results .group").count() == 0
    assert shown(page)[0] == "ER"  # of the larger buffer


# The figures


def test_pointing_at_a_mark_shows_its_value_until_the_pointer_leaves(show: Open) -> None:
    page = show(rich_data())
    for figure, mark, expected in (
        ("confidence", ".panel:nth-child(1) .marker", ["class 0, task 1", "50.00 ±0.00 %"]),
        ("mask-sweep", "[data-kind=line] .marker >> nth=-1", [f"m = {MINUS}1", "88.00 ±0.82 %"]),
        ("matrices", ".panel:nth-child(1) .heat-cell", ["after task 1, on task 1", "95.00 %"]),
        ("stability-plasticity", "[data-series='DER++'] .marker", ["buffer 200", "plasticity 93"]),
    ):
        hover(page, f"#figure-{figure} {mark}", *expected)
    page.mouse.move(2, 2)
    until(page, TIP_IS_HIDDEN)


def test_arrow_keys_read_a_chart(show: Open) -> None:
    page = show(own_data())
    tip = page.locator("#tip")

    page.locator("#figure-confidence .panel:nth-child(2) svg").focus()
    page.keyboard.press("ArrowRight")
    assert "task 1" in tip.inner_text()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert "task 3" in tip.inner_text()
    assert tip.locator(".chosen").inner_text().split()[:3] == ["DER++", "76.25", "±1.75"]
    page.keyboard.press("ArrowDown")
    assert tip.locator(".chosen").inner_text().split()[0] == "MSER(-inf)"
    page.keyboard.press("Escape")
    assert not tip.is_visible()


def test_a_sweep_starts_at_minus_infinity_and_figures_have_tables(show: Open) -> None:
    page = show(rich_data())

    sweep = page.locator("#figure-mask-sweep")
    ticks = sweep.locator(".ticks.x text").all_text_contents()
    assert ticks == [f"{MINUS}∞", f"{MINUS}10³", f"{MINUS}1"]
    assert sweep.locator(".chart .level").count() == 1
    caption = sweep.locator("figcaption").inner_text()
    assert f"m = {MINUS}1: 88.00\N{NO-BREAK SPACE}%, without a mask 85.00" in caption

    page.locator("#numbers-matrices summary").click()
    until(page, "document.querySelector('#numbers-matrices tbody')")
    lines = page.locator("#numbers-matrices tbody tr")
    assert lines.count() == 4 * 15  # four favourites, the lower triangle of five tasks
    second = lines.nth(1).inner_text().split("\t")
    assert second == ["DER++", "DER++", "after task 2, on task 1", "85.00 %, 3 trials"]


def test_figures_follow_the_chosen_setting_systems_and_buffer(show: Open) -> None:
    records = trials([80.0], 10.0) + trials([85.0], 10.0, method="derpp")
    records += trials([70.0], buffer=500) + trials([20.0], method="sgd", buffer=0, replay_batch=0)
    page = show(report_data(records))
    panels = page.locator("#figure-matrices .panel h4")

    assert page.locator("#figure-matrices .number").first.text_content() == "95.0"
    page.get_by_role("radio", name="Task-IL").check()
    assert page.locator("#figure-matrices .number").first.text_content() == "85.0"
    page.locator("label.pill", has_text="SGD").click()
    assert panels.all_inner_texts() == ["DER++", "ER", "SGD"]
    page.locator("label.pill", has_text="DER++").first.click()
    assert "DER++" not in page.locator("#figure-confidence .legend").all_inner_texts()[0].split()
    page.locator("#choose-buffer").select_option("500")
    assert panels.all_inner_texts() == ["ER", "SGD"]


def test_the_page_draws_every_mark_of_a_description(show: Open) -> None:
    records = [
        record
        for place, mask in enumerate((None, -math.inf, -2.0, -1.0))
        for buffer in (20, 50)
        for record in trials([60.0 + place, 61.0 + place], 9.0, mask=mask, buffer=buffer)
    ]
    data = report_data(records)
    chosen = urlencode([("memory", 20), *(("system", label) for label in data["looks"])])
    page = show(data, f"#{chosen}")
    of_buffer = {cell["id"] for cell in data["cells"] if cell["buffer"] == 20}
    for figure in (figure for figure in data["figures"] if figure["setting"] == "class_il"):
        drawn = page.locator(f"#figure-{figure['key']} [data-kind]").evaluate_all(
            """all => all.map(({ dataset, children }) => [dataset.kind, dataset.series,
                [...children].filter((part) => part.matches('.marker')).length])"""
        )
        follows = page.locator(f"#figure-{figure['key']}").get_attribute("data-follows") or ""
        described = [
            [mark["kind"], mark["name"], len(mark["x"]) * (mark["kind"] != "level")]
            for panel in figure["panels"]
            for mark in panel["marks"]
            if mark["kind"] != "heat"
            if "buffer" not in follows or mark["sources"][0]["cell"] in of_buffer
        ]
        assert drawn == described, figure["key"]


# One cell, and two


def test_a_cell_opens_from_its_row_or_a_link_and_closes_by_escape_or_back(show: Open) -> None:
    data = rich_data()
    er = id_of(data, "ER")
    page = show(data)
    page.locator(f"tr[data-cell='{er}'] td.trials").click()
    dialog = page.locator("dialog")
    assert dialog.locator("h2").inner_text() == "ER"
    assert f"cell={er}" in page.url
    assert dialog.locator(".trials tbody tr").count() == 3
    assert dialog.locator(".heat-cell").count() == 2 * 15
    hover(page, "dialog .heat-cell", "after task 1, on task 1")
    page.keyboard.press("Escape")
    until(page, f"!{DIALOG_IS_OPEN} && !location.hash")
    page.go_forward()  # closing went back, so the cell is still one step ahead
    until(page, DIALOG_IS_OPEN)
    page.go_back()
    until(page, f"!{DIALOG_IS_OPEN}")

    page = show(data, f"#q=er&cell={er}")
    page.get_by_role("button", name="Close").click()
    until(page, f"location.hash === '#q=er' && !{DIALOG_IS_OPEN}")


def test_a_cell_without_results_shows_errors_or_the_published_figures(show: Open) -> None:
    data = rich_data()
    text = show(data, f"#cell={id_of(data, 'HAL')}").locator("dialog").inner_text()
    assert "No trial of this cell has finished" in text
    assert "no <b>memory</b> left" in text
    assert "diverged at step 7" in text

    page = show(data, f"#{urlencode({'cell': id_of(data, 'MSER(-inf)')})}")
    assert "82.98 ±1.03" in page.locator("dialog").inner_text()
    assert page.locator("#command").inner_text().startswith("remask reproduce main")


@pytest.mark.parametrize("allowed", [True, False])
def test_the_command_is_copied_or_else_selected(show: Open, allowed: bool) -> None:
    clipboard = "{ writeText: async (text) => { window.copied = text; } }"
    value = clipboard if allowed else "undefined"
    stub = f"Object.defineProperty(navigator, 'clipboard', {{ value: {value} }});"
    data = rich_data()
    page = show(data, f"#cell={id_of(data, 'ER')}", script=stub + TIMERS_BY_HAND)

    page.locator("#copy").click()
    answer = "Copied" if allowed else "Selected"
    until(page, f"document.getElementById('copy').textContent.startsWith('{answer}')")
    assert page.evaluate("window.copied ?? String(getSelection())") == "remask run"


def test_the_effect_of_a_mask_is_tested_seed_by_seed(show: Open) -> None:
    records = trials([70.0, 80.0, 90.0], 9.0) + trials([71.0, 81.5, 91.2], 5.0, mask=-1.0)
    records += trials([70.0, 80.0], buffer=500) + trials([75.0, 88.0], buffer=500, mask=-1.0)
    page = show(report_data(records))

    many, few = texts(page.locator(".contrasts tbody tr"))
    assert "ER MSER(-1) +1.23" in many
    marks = page.locator(".contrasts tbody tr >> nth=0 >> .difference").evaluate_all(
        "all => all.map(one => one.title)"
    )
    # Better although the spread over seeds is far larger, and less forgetting is better.
    assert marks[:2] == ["better", "better"]
    assert "too few trials" in few
    page.get_by_role("button", name="Compare MSER(-1) with ER").first.click()
    first = page.locator(".compared-cells tbody tr").first.inner_text()
    assert "+1.23" in first
    assert "MSER(-1)" in first.split("\t")[-1]


@pytest.mark.parametrize("kind", ["paired", "Welch"])
def test_the_page_s_t_test_is_that_of_the_library(show: Open, kind: str) -> None:
    data = own_data()
    by_id = {cell["id"]: cell for cell in data["cells"]}
    one, other = (by_id[id_of(data, label)] for label in ("ER", "DER++"))
    if kind == "Welch":  # no seed in common
        for record in other["records"]:
            record["seed"] += 100
        other["records"].append({**other["records"][0], "seed": 300})
    values = [
        {r["seed"]: r["scores"]["class_il_A_T"] for r in cell["records"]} for cell in (one, other)
    ]
    expected = t_test(*values)
    assert expected is not None
    assert expected.kind == kind
    page = show(data, f"#{urlencode({'one': one['id'], 'other': other['id']})}")

    row = page.locator(".compared-cells tbody tr").first.locator("td").all_inner_texts()
    difference = float(np.mean(list(values[0].values()))) - float(np.mean(list(values[1].values())))
    assert float(row[3].replace(MINUS, "-")) == pytest.approx(difference, abs=0.006)
    assert float(row[5]) == pytest.approx(expected.p_different, abs=0.0006)
    low, high = (float(text.replace(MINUS, "-")) for text in row[4].split(" to "))
    # At the end of the confidence interval, p is 5 %.
    half = (high - low) / 2 / abs(difference / expected.t)
    assert TTest("paired", half, 1.0, expected.freedom).p_different == pytest.approx(
        0.05, abs=0.002
    )


# Choices, colours, sizes and names


def test_a_reload_keeps_all_choices_and_ignores_invalid_ones(show: Open) -> None:
    page = show(rich_data(), "#column=nothing&at=z&system=y&verdict=%")
    page.locator("#clear").click()
    page.locator("#filter-text").fill("er")
    page.locator("#filter-buffer").select_option("200")
    heading(page, "class_il_A_T").locator("button").click()
    page.locator("label.pill", has_text="SGD").click()
    page.locator("#choose-buffer").select_option("500")
    page.locator(".statement summary").first.click()
    until(page, "location.hash.includes('open=')")
    page.locator(".results").get_by_role("link", name="MSDER++(-inf)").click()
    before = rows(page)

    page.reload()
    assert page.locator("dialog h2").inner_text() == "MSDER++(-inf)"
    assert rows(page) == before
    values = [page.locator(f"#{name}").input_value() for name in ("filter-text", "choose-buffer")]
    assert values == ["er", "500"]
    assert page.locator(".statement").first.get_attribute("open") is not None
    assert heading(page, "class_il_A_T").get_attribute("aria-sort") == "descending"
    assert "SGD" in page.locator("#figure-confidence .legend").inner_text()


def test_a_live_page_reloads_itself_unless_paused(show: Open) -> None:
    page = show(own_data(), "#live=paused", refresh_seconds=2.5, script=TIMERS_BY_HAND)
    assert "paused" in page.locator("#live").inner_text()
    assert page.evaluate("timers.size") == 0
    page.locator("#filter-text").fill("mser")
    page.locator("#filter-text").evaluate("field => field.setSelectionRange(1, 1)")
    page.evaluate("scrollTo(0, 300)")

    page.evaluate("document.getElementById('pause').click()")  # a real click would take the focus
    assert page.locator("#live span").inner_text() == "live: refreshed every 2.5 s"
    assert page.evaluate("[...timers.values()].map(({ delay }) => delay)") == [2500]
    with page.expect_event("load"):
        page.evaluate("[...timers.values()][0].call()")
    until(page, "scrollY === 300")
    assert page.locator("#filter-text").input_value() == "mser"
    assert len(rows(page)) == 1
    place = "[document.activeElement.id, document.activeElement.selectionStart]"
    assert page.evaluate(place) == ["filter-text", 1]
    page.locator("#pause").click()
    assert page.evaluate("timers.size") == 0


def test_colours_follow_the_system_until_toggled(show: Open) -> None:
    page = show(own_data(), dark=True)

    def is_dark() -> bool:
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return max(map(int, re.findall(r"\d+", colour)[:3])) < 128

    assert is_dark()
    page.locator("#theme").click()
    assert not is_dark()
    # What is stored reaches the process of the next page a moment later.
    assert any(page.reload() and not is_dark() for _ in range(20))


def test_the_page_never_scrolls_sideways(show: Open) -> None:
    data = rich_data()
    page = show(data, width=1920)
    hostile = data["cells"][0]["id"]
    overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"

    for width in (1920, 1060, 390, 320):
        page.set_viewport_size({"width": width, "height": 800})
        until(page, f"innerWidth === {width} && !({overflow})")
        page.locator(f"tr[data-cell='{hostile}'] a").click()
        assert page.locator(".detail").evaluate("inside => inside.scrollWidth <= innerWidth")
        assert page.evaluate(overflow) == 0
        page.get_by_role("button", name="Close").click()
        until(page, f"!{DIALOG_IS_OPEN} && !location.hash")


def test_hostile_names_are_shown_as_text(show: Open) -> None:
    data = rich_data()
    page = show(data, f"#at={HOSTILE.replace('&', '%26')}")
    hostile = page.locator(f"tr[data-cell='{data['cells'][0]['id']}']")

    assert page.title() == "Toy results"
    assert page.locator("img").count() == 0
    assert HOSTILE in hostile.inner_text()
    assert HOSTILE in page.locator(".running").inner_text()
    assert HOSTILE in page.locator("#figure-confidence .legend").inner_text()
    hover(page, "#figure-confidence .chart .marker", HOSTILE)
    hostile.locator("a").click()
    assert page.locator("dialog h2").inner_text() == HOSTILE


# The history of a learner


def test_the_history_of_a_learner_is_drawn(show: Open) -> None:
    page = show(history_html("pets", VISITS))
    assert page.locator("#facts dd").all_inner_texts() == ["2", "3", "75.0 %", "2026-05-04"]
    assert texts(page.locator("#figure .legend li")) == ["ant", "bee", "cat", "all classes"]
    page.locator("#figure svg.chart").focus()
    page.keyboard.press("ArrowRight")
    assert "100.00 %, 4 held-out samples" in page.locator("#tip").inner_text()
    bee = page.locator("#classes tbody tr").nth(1).locator("td").all_inner_texts()
    assert bee == ["bee", MISSING, "50.0"]
