"""The page in a real browser: what a reader sees, clicks, types and comes back to."""

import dataclasses
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

from remask.reports.figures import plot
from remask.reports.history import KeptClass, LearnerNow, write_history
from remask.reports.page import page_html
from remask.reports.statistics import t_test, upper_tail
from remask.results import summarise
from tests.reports.samples import report_data
from tests.reports.test_history import VISITS
from tests.reports.test_page import HOSTILE, make_cell, make_data, real_data, rich_data
from tests.results.store_samples import make_config, make_record, trial_with_accuracy

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

sync_api = pytest.importorskip("playwright.sync_api")

_CHROMIUM = os.environ.get("REMASK_CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(_CHROMIUM is None, reason="no Chromium found; REMASK_CHROMIUM can name one"),
]
_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

Open = Callable[..., "Page"]
HELD_OUT: dict[str, Any] = {
    "validation_class_il": [[90.0, None], [40.0, 80.0]],
    "validation_task_il": [[95.0, None], [85.0, 75.0]],
}

MINUS, MISSING = "\N{MINUS SIGN}", "\N{EN DASH}"  # as the page writes them


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_CHROMIUM, args=_ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def context(browser: "Browser") -> "BrowserContext":
    """One for all tests: it is slow to make, and all that is left in it is a choice of theme."""
    context = browser.new_context(reduced_motion="reduce")
    context.set_default_timeout(30_000)  # only what fails takes long
    return context


@pytest.fixture
def show(context: "BrowserContext", tmp_path: Path) -> Iterator[Open]:
    """Open data as a page from a file; it must neither complain nor ask for anything."""
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "request",
        lambda asked: None if asked.url.startswith("file:") else complaints.append(asked.url),
    )

    def show(
        data: dict[str, Any],
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
        path.write_text(page_html(data, refresh_seconds=refresh_seconds), encoding="utf-8")
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
            (cell.querySelector('.ours, a, .badge') ?? cell).textContent).join('\\t'))""",
    )
    return found


def hover(page: "Page", mark: str, *expected: str) -> None:
    """Point at the middle of a mark, and wait for a tip that says what is expected."""
    target = page.locator(mark).first
    target.scroll_into_view_if_needed()
    box = target.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tip = "document.getElementById('tip')"
    until(page, f"!{tip}.hidden && {json.dumps(expected)}.every(t => {tip}.innerText.includes(t))")


def until(page: "Page", condition: str) -> None:
    """Wait for something to be true. Playwright's own way needs eval, which is forbidden.

    Needed after whatever the browser tells the page of later: `toggle` and `close`, the back and
    forward buttons, a new size, the pointer.
    """
    for _ in range(1500):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(20)
    raise AssertionError(f"never true: {condition}")


DIALOG_IS_OPEN = "document.querySelector('dialog').open"
TIP_IS_HIDDEN = "document.getElementById('tip').hidden"

TIMERS_BY_HAND = """(() => {
    let last = 0;
    const timers = window.timers = new Map();
    window.setTimeout = (call, delay) => { timers.set(++last, { call, delay }); return last; };
    window.clearTimeout = (id) => timers.delete(id);
})();"""
"""A script for pages with timers: none runs out unless the test says so."""


def heading(page: "Page", name: str) -> Any:
    return page.locator(f'.results th[data-key="{name}"]')


# -- the head of the page


def test_the_overview_counts_what_there_is(show: Open) -> None:
    page = show(rich_data())

    assert page.title() == page.locator("h1").inner_text() == "Toy results"
    facts = page.locator(".facts").inner_text().split()
    assert "9 cells with results" in " ".join(reversed_pairs(page))
    assert "18" in facts
    assert "2 failed or diverged" in " ".join(reversed_pairs(page))
    assert page.locator(".verdicts li").all_inner_texts()[0].split()[:3] == [
        "2",
        "no",
        "significant",
    ]
    assert page.locator(".verdicts li").count() == 3
    verdicts = page.locator("#verdicts").inner_text()
    assert "2 of the 3 that were run are within two published standard deviations" in verdicts
    assert "a test of figures; about 1 expected by chance." in verdicts
    assert page.locator("progress").evaluate("bar => [bar.value, bar.max]") == [3, 10]
    assert "toy.db" in page.locator("#provenance").inner_text()


def reversed_pairs(page: "Page") -> list[str]:
    found: list[str] = page.eval_on_selector_all(
        ".facts > div",
        "all => all.map(one => `${one.children[1].textContent} ${one.children[0].textContent}`)",
    )
    return found


def test_large_data_are_compressed_and_shown_all_the_same(
    show: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = make_data([make_cell("ER", 60.0), make_cell("na\u00efve \U0001f642", 70.0)])
    plain = rows(show(data))
    monkeypatch.setattr("remask.reports.page._LARGEST_PLAIN", 0)
    assert "na\\u00efve" not in page_html(data)

    page = show(data)

    page.wait_for_selector(".results tbody tr[data-cell]")
    assert len(plain) == 2
    assert rows(page) == plain


def test_a_statement_shows_both_findings_and_opens_to_its_evidence(show: Open) -> None:
    page = show(rich_data())
    statement = page.locator(".statement")

    assert statement.locator("summary .badge").all_inner_texts() == ["holds", "contradicted"]
    assert not statement.locator("table").is_visible()
    statement.locator("summary").click()
    evidence = statement.locator("tbody").inner_text()
    assert "ER 20.00 ±1.00 (9 trials)" in " ".join(evidence.split())
    assert "MSER(-inf) 18.00 (1 trial)" in " ".join(evidence.split())
    assert "paired, 10 seeds" in evidence
    assert "0.01" in evidence
    assert "a test of tests" in page.locator("#statements-intro").inner_text()


def test_results_of_your_own_show_no_verdicts_and_no_statements(show: Open) -> None:
    page = show(real_data())

    assert not page.locator("#statements").is_visible()
    assert not page.get_by_role("link", name="Statements").is_visible()
    assert page.locator(".verdicts").count() == 0
    assert heading(page, "verdict").count() == 0
    assert "1 diverged" in page.locator(".results").inner_text()


def test_an_empty_store_says_so(show: Open) -> None:
    page = show(make_data([], running=[{"name": "first", "done": 0, "trials": 5}]))

    assert page.locator("#nothing").is_visible()
    assert not page.locator("#figures").is_visible()
    assert "0 of 5 trials" in page.locator(".running").inner_text()


# -- the table


def test_numbers_sort_as_numbers_and_missing_ones_come_last_either_way(show: Open) -> None:
    page = show(rich_data())
    button = heading(page, "class_il_A_T").locator("button")

    button.click()
    assert heading(page, "class_il_A_T").get_attribute("aria-sort") == "descending"
    best = [text.split()[0] for text in shown(page, 4)]
    assert best == [
        "88.00",
        "86.00",
        "85.00",
        "84.00",
        "82.00",
        "80.00",
        "50.00",
        "20.00",
        "9.50",
        MISSING,
        MISSING,
    ]
    button.click()
    assert heading(page, "class_il_A_T").get_attribute("aria-sort") == "ascending"
    worst = [text.split()[0] for text in shown(page, 4)]
    assert worst == [*reversed(best[:-2]), MISSING, MISSING]
    button.click()
    assert heading(page, "class_il_A_T").get_attribute("aria-sort") == "none"
    assert shown(page, 1)[:2] == ["ER", "ER"]


def test_forgetting_sorts_the_least_first(show: Open) -> None:
    page = show(rich_data())

    heading(page, "class_il_F_T").locator("button").click()
    assert shown(page, 5)[0].startswith("12.00")


def test_every_column_sorts_from_the_keyboard(show: Open) -> None:
    page = show(rich_data())

    for name in ("benchmark", "label", "buffer", "trials", "task_il_A_T", "verdict"):
        heading(page, name).locator("button").focus()
        page.keyboard.press("Enter")
        first, order = rows(page), heading(page, name).get_attribute("aria-sort")
        page.keyboard.press("Enter")
        orders = {order, heading(page, name).get_attribute("aria-sort")}
        assert orders == {"ascending", "descending"}, name
        assert rows(page) != first
        assert sorted(rows(page)) == sorted(first)


def test_filters_combine_and_can_be_cleared(show: Open) -> None:
    page = show(rich_data())

    page.locator("#filter-experiment").select_option("main")
    assert shown(page, 1) == ["ER", "ER", "MSER(-inf)", "DER++", "MSDER++(-inf)", "MSDER++(-1)"]
    page.locator("#filter-buffer").select_option("200")
    assert shown(page, 1) == ["ER", "MSER(-inf)", "DER++", "MSDER++(-inf)", "MSDER++(-1)"]
    page.locator("#filter-text").fill("DER -INF")
    assert shown(page, 1) == ["MSDER++(-inf)"]
    assert page.locator("#shown").inner_text() == "1 of 11 cells"
    page.locator("#filter-verdict").select_option("worse")
    assert shown(page, 1) == []
    assert page.locator("#nothing").is_visible()
    page.locator("#clear").click()
    assert len(rows(page)) == 11
    assert page.locator("#filter-text").input_value() == ""


def test_ours_stands_beside_the_published_figure_and_the_difference(show: Open) -> None:
    page = show(rich_data(), "#q=er&buffer=200&verdict=no+significant+difference")

    entry = page.locator(".results td.measure").first
    assert entry.locator(".ours").inner_text() == "80.00 ±1.00"
    assert "80.50 ±1.00" in entry.locator(".published").inner_text()
    assert entry.locator(".std").inner_text() == f"{MINUS}0.5 std"
    assert page.locator(".results td.verdict").inner_text() == "no significant difference"


def test_the_head_of_the_table_stays_in_sight(show: Open) -> None:
    page = show(make_data([make_cell(f"system {n}", n / 4, id=f"c{n}") for n in range(300)]))

    assert len(rows(page)) == 300
    page.locator("tr[data-cell='c150']").scroll_into_view_if_needed()
    page.mouse.wheel(0, 300)
    until(page, "document.querySelector('.results th').getBoundingClientRect().top < 60")
    assert heading(page, "label").evaluate("head => head.getBoundingClientRect().top") > 40


# -- the figures


def test_pointing_at_a_mark_shows_its_value(show: Open) -> None:
    data = rich_data()
    for figure in data["figures"]:
        for mark in (mark for panel in figure["panels"] for mark in panel["marks"]):
            if mark["kind"] == "thread" and mark["name"] == "DER++":
                mark["x_std"] = [15.0]  # reaches out of the frame
    page = show(data)

    for figure, mark, expected in (
        (
            "confidence",
            ".panel:nth-child(1) .marker",
            ["class 0, task 1", "80.00 ±0.50 %, 2 trials"],
        ),
        ("confidence", ".panel:nth-child(2) .marker", ["task 1", "70.00 ±0.00 %, 2 trials"]),
        (
            "accuracy-over-tasks",
            ".panel:nth-child(3) .marker",
            ["task 2, after task 2", "80.00 ±0.00 %"],
        ),
        (
            "mask-sweep",
            "[data-kind=line] .marker >> nth=-1",
            [f"m = {MINUS}1", "83.00 ±0.00 %, 2 trials"],
        ),
        (
            "matrices",
            ".panel:nth-child(1) .heat-cell",
            ["task 1, after task 1", "80.00 %, 2 trials"],
        ),
        (
            "stability-plasticity",
            "[data-series='DER++'] .marker",
            ["buffer 200", "2 trials", "stability 92.50 ±15.00", "plasticity 85.00 ±0.00"],
        ),
    ):
        hover(page, f"#figure-{figure} {mark}", *expected)


def test_one_trial_has_no_spread_anywhere_on_the_page(show: Open) -> None:
    data = make_data([make_cell("ER", 80.0, trials=1), make_cell("DER++", 85.0, trials=1)])
    for cell in data["cells"]:
        for score in [*cell["scores"].values(), *cell["confidence"]]:
            score["std"] = None
    page = show(data)

    entry = page.locator("tr[data-cell='ER200'] .measure >> nth=0")
    assert entry.locator(".ours").inner_text() == "80.00"
    plane = "#figure-stability-plasticity"
    hover(page, f"{plane} [data-series='DER++'] .marker", "stability 92.50 %", "1 trial")
    hover(page, "#figure-confidence .panel:nth-child(1) .marker", "80.00 %, 1 trial")
    openings = page.locator("#results, #figures").all_inner_texts()
    assert not any("±" in text for text in openings)


def test_the_tip_goes_when_the_pointer_does(show: Open) -> None:
    page = show(rich_data())

    hover(page, "#figure-confidence .chart .marker")
    assert page.locator("#tip").is_visible()
    page.mouse.move(2, 2)
    until(page, TIP_IS_HIDDEN)
    assert not page.locator("#tip").is_visible()


def test_arrow_keys_read_a_chart(show: Open) -> None:
    page = show(rich_data())

    page.locator("#figure-confidence .panel:nth-child(1) svg").focus()
    page.keyboard.press("ArrowRight")
    assert "class 0" in page.locator("#tip").inner_text()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert "class 2" in page.locator("#tip").inner_text()
    assert page.locator("#tip .chosen").inner_text().split() == [
        "ER",
        "78.00",
        "±0.50",
        "%,",
        "2",
        "trials",
    ]
    page.keyboard.press("ArrowUp")
    assert page.locator("#tip .chosen").inner_text().split()[0] == "MSER(-inf)"
    page.keyboard.press("Escape")
    assert not page.locator("#tip").is_visible()


def test_masks_run_from_minus_infinity_with_a_break_beside_the_unmasked_line(show: Open) -> None:
    page = show(rich_data())

    ticks = page.locator("#figure-mask-sweep .ticks.x text").all_text_contents()
    assert ticks == [f"{MINUS}∞", f"{MINUS}10³", f"{MINUS}1"]
    assert page.locator("#figure-mask-sweep .break").count() == 1
    assert page.locator("#figure-mask-sweep .chart .level").count() == 1
    caption = page.locator("#figure-mask-sweep figcaption").inner_text()
    assert f"m = {MINUS}1: 83.00\N{NO-BREAK SPACE}%, without a mask 80.00" in caption


def test_a_figure_without_data_is_left_out(show: Open) -> None:
    page = show(real_data())

    assert page.locator("#figure-mask-sweep").count() == 0
    assert page.locator("#figures figure:visible").count() > 2


def test_the_numbers_of_a_figure_can_be_read_as_a_table(show: Open) -> None:
    page = show(rich_data())

    page.locator("#numbers-matrices summary").click()
    until(page, "document.querySelector('#numbers-matrices tbody')")
    lines = page.locator("#numbers-matrices tbody tr")
    assert lines.count() == 5 * 6  # five systems, the lower triangle of three tasks
    assert lines.nth(1).inner_text().split("\t") == [
        "ER",
        "ER",
        "task 1, after task 2",
        "75.00 %, 2 trials",
    ]


def test_choosing_another_question_and_other_systems_redraws(show: Open) -> None:
    page = show(rich_data())
    numbers = page.locator("#figure-matrices .number")

    assert numbers.first.text_content() == "80.0"
    page.get_by_role("radio", name="Task-IL").check()
    assert numbers.first.text_content() == "99.0"
    page.locator("label.pill", has_text="SGD").click()
    assert page.locator("#figure-matrices .panel h4").all_inner_texts()[-1] == "SGD"
    page.locator("label.pill", has_text="DER++").first.click()
    assert "DER++" not in page.locator("#figure-confidence .legend").all_inner_texts()[0].split()
    page.locator("#choose-buffer").select_option("500")
    assert page.locator("#figure-matrices .panel h4").all_inner_texts() == ["ER", "SGD"]


def test_one_task_and_many_are_both_drawn(show: Open) -> None:
    single = make_cell("one", 70.0, class_il=[[70.0]], task_il=[[70.0]], benchmark="a")
    matrix = [[50.0 if task <= after else None for task in range(20)] for after in range(20)]
    classes = [{"mean": float(index % 100), "std": 0.0} for index in range(200)]
    long = make_cell(
        "many", 50.0, class_il=matrix, task_il=matrix, confidence=classes, benchmark="b"
    )
    page = show(make_data([single, long]), "#at=b")

    assert page.locator("#figure-matrices .heat-cell").count() == 210
    assert "class 199" in page.locator("#figure-confidence .chart").first.evaluate(
        "chart => chart.points.at(-1).where"
    )
    page.locator("#choose-benchmark").select_option("a")
    assert page.locator("#figure-matrices .heat-cell").count() == 1
    assert not page.locator("#figure-accuracy-over-tasks").is_visible()  # b has it, a does not


def _learnt(label: str, tasks: Any, names: Any, sure: list[float], **parts: Any) -> dict[str, Any]:
    """A cell with these tasks; class k is known with the k-th confidence, in percent."""
    matrix = [[50.0 if task <= after else None for task in range(3)] for after in range(3)]
    return make_cell(
        label,
        50.0,
        class_il=matrix,
        task_il=matrix,
        confidence=[{"mean": value, "std": 0.0} for value in sure],
        tasks=tasks,
        class_names=names,
        **parts,
    )


def test_classes_stand_by_task_and_by_name_whatever_their_labels(show: Open) -> None:
    names = ["ant", "bee", "cat", "dog", "elk", "<b>fox</b>"]
    cell = _learnt("mine", [[3, 0, 5], [1], [2, 4]], names, [10, 50, 70, 20, 90, 30])
    page = show(make_data([cell]))

    panel = page.locator("#figure-confidence .panel:nth-child(1)")
    marks = panel.locator("svg").evaluate("chart => chart.points.map((m) => [m.where, m.value])")
    assert marks == [
        ["class dog, task 1", "20.00 ±0.00 %, 2 trials"],
        ["class ant, task 1", "10.00 ±0.00 %, 2 trials"],
        ["class <b>fox</b>, task 1", "30.00 ±0.00 %, 2 trials"],
        ["class bee, task 2", "50.00 ±0.00 %, 2 trials"],
        ["class cat, task 3", "70.00 ±0.00 %, 2 trials"],
        ["class elk, task 3", "90.00 ±0.00 %, 2 trials"],
    ]
    ticks = panel.locator(".ticks.x text").all_text_contents()
    assert ticks == ["dog", "ant", "<b>fox</b>", "bee", "cat", "elk"]
    assert panel.locator(".shades text").all_text_contents() == ["task 1", "task 2", "task 3"]
    assert "mine 20 → 80" in page.locator("#figure-confidence figcaption").inner_text()
    page.locator("tr[data-cell='mine200'] a").click()
    assert "dog, ant, <b>fox</b>" in page.locator("dialog").inner_text()


def test_systems_that_learnt_other_tasks_have_a_panel_of_their_own(show: Open) -> None:
    names = [str(label) for label in range(6)]
    sure = [10.0, 50, 70, 20, 90, 30]
    first = _learnt("ER, 3 tasks (1)", [[0, 1], [2, 3], [4, 5]], names, sure)
    second = _learnt("ER, 3 tasks (2)", [[5, 4], [3, 2], [1, 0]], names, sure)
    page = show(make_data([first, second]))

    panels = page.locator("#figure-confidence .panel")
    assert panels.count() == 4  # classes and tasks, of each
    assert panels.nth(0).locator(".ticks.x text").all_text_contents() == names
    assert panels.nth(2).locator(".ticks.x text").all_text_contents() == names[::-1]
    caption = page.locator("#figure-confidence figcaption").inner_text()
    assert "ER, 3 tasks (1) 30 → 60" in caption
    assert "ER, 3 tasks (2) 60 → 30" in caption


# -- one cell


def test_a_row_opens_its_cell_and_escape_closes_it(show: Open) -> None:
    page = show(rich_data())

    page.locator("tr[data-cell='ER200'] td.trials").click()
    dialog = page.locator("dialog")
    assert dialog.locator("h2").inner_text() == "ER"
    assert "cell=ER200" in page.url
    assert dialog.locator(".trials tbody tr").count() == 2
    assert "gamma 0.5" in dialog.locator(".settings").inner_text()
    assert dialog.locator(".heat-cell").count() == 2 * 6
    hover(page, "dialog .heat-cell", "task 1, after task 1")
    page.mouse.move(2, 2)
    until(page, TIP_IS_HIDDEN)
    page.keyboard.press("Escape")
    until(page, f"!{DIALOG_IS_OPEN} && !location.hash")
    page.go_forward()  # closing went back, so the cell is still one step ahead
    until(page, DIALOG_IS_OPEN)


def test_the_back_button_closes_a_cell_and_forward_opens_it(show: Open) -> None:
    page = show(rich_data(), "#q=er")

    page.locator(".results").get_by_role("link", name="MSER(-inf)").focus()
    page.keyboard.press("Enter")
    assert page.locator("dialog").is_visible()
    page.go_back()
    until(page, f"!{DIALOG_IS_OPEN} && location.hash === '#q=er'")
    page.go_forward()
    until(page, DIALOG_IS_OPEN)
    assert page.locator("dialog h2").inner_text() == "MSER(-inf)"


def test_a_link_opens_a_cell_and_closing_it_keeps_the_rest(show: Open) -> None:
    page = show(rich_data(), "#q=er&cell=ER200")

    assert page.locator("dialog h2").inner_text() == "ER"
    page.get_by_role("button", name="Close").click()
    until(page, "location.hash === '#q=er'")
    assert not page.locator("dialog").is_visible()


def test_a_cell_without_a_finished_trial_shows_why(show: Open) -> None:
    page = show(rich_data(), "#cell=broken200")

    text = page.locator("dialog").inner_text()
    assert "No trial of this cell has finished" in text
    assert "no <b>memory</b> left" in text
    assert "diverged at step 7" in text


def test_a_cell_that_was_not_run_shows_the_claim_and_the_command(show: Open) -> None:
    page = show(rich_data(), "#cell=not-run-MSDER%2B%2B(-inf)")

    assert "70.00 ±1.00" in page.locator("dialog").inner_text()
    assert page.locator("#command").inner_text().startswith("remask reproduce low-buffer")


def test_the_command_is_copied(show: Open) -> None:
    stub = """Object.defineProperty(navigator, 'clipboard', {
        value: { writeText: async (text) => { window.copied = text; } } });"""
    page = show(rich_data(), "#cell=ER200", script=stub + TIMERS_BY_HAND)

    page.locator("#copy").click()
    until(page, "document.getElementById('copy').textContent === 'Copied'")
    assert page.evaluate("window.copied") == "remask run --method toy --trials 2  # ER"


def test_where_copying_is_forbidden_the_command_is_selected(show: Open) -> None:
    stub = "Object.defineProperty(navigator, 'clipboard', { value: undefined });"
    page = show(rich_data(), "#cell=ER200", script=stub + TIMERS_BY_HAND)

    page.locator("#copy").click()
    until(page, "document.getElementById('copy').textContent.startsWith('Selected')")
    assert page.evaluate("String(getSelection())").startswith("remask run --method toy")


# -- what is kept


def test_a_reload_keeps_everything_that_was_chosen(show: Open) -> None:
    page = show(rich_data())
    page.locator("#filter-text").fill("er")
    page.locator("#filter-buffer").select_option("200")
    heading(page, "class_il_A_T").locator("button").click()
    page.locator("label.pill", has_text="SGD").click()
    page.locator("#choose-buffer").select_option("500")
    page.locator(".statement summary").click()
    until(page, "location.hash.includes('open=')")
    page.get_by_role("link", name="MSER(-inf)").click()
    before = rows(page)

    page.reload()
    assert page.locator("dialog h2").inner_text() == "MSER(-inf)"
    assert rows(page) == before
    assert page.locator("#filter-text").input_value() == "er"
    assert page.locator("#filter-buffer").input_value() == "200"
    assert page.locator("#choose-buffer").input_value() == "500"
    assert page.locator(".statement").get_attribute("open") is not None
    assert heading(page, "class_il_A_T").get_attribute("aria-sort") == "descending"
    assert "SGD" in page.locator("#figure-confidence .legend").inner_text()


def test_an_address_with_nonsense_in_it_is_survived(show: Open) -> None:
    page = show(rich_data(), "#sort=nothing&order=up&cell=none&memory=x&system=y&at=z&buffer=%")

    assert not page.locator("dialog").is_visible()
    assert page.locator("#figure-confidence .chart .marker").count() > 0


def test_a_live_page_refreshes_itself_and_loses_nothing(show: Open) -> None:
    page = show(rich_data(), "#live=paused", refresh_seconds=2.5, script=TIMERS_BY_HAND)
    page.locator("#filter-text").fill("er")
    page.locator("#filter-text").evaluate("field => field.setSelectionRange(1, 1)")
    page.evaluate("scrollTo(0, 700)")
    filtered = rows(page)
    press = "document.getElementById('pause').click()"  # a real click would take the focus

    page.evaluate(press)
    assert page.locator("#live span").inner_text() == "live: refreshed every 2.5 s"
    assert page.evaluate("[...timers.values()].map(({ delay }) => delay)") == [2500]
    with page.expect_event("load"):
        page.evaluate("[...timers.values()][0].call()")
    until(page, "scrollY === 700")
    assert page.locator("#filter-text").input_value() == "er"
    assert rows(page) == filtered
    assert 0 < len(filtered) < 11
    place = "[document.activeElement.id, document.activeElement.selectionStart]"
    assert page.evaluate(place) == ["filter-text", 1]


def test_a_live_page_that_is_paused_stays_as_it_is(show: Open) -> None:
    page = show(rich_data(), refresh_seconds=0.2, script=TIMERS_BY_HAND)
    assert page.evaluate("timers.size") == 1

    page.locator("#pause").click()
    assert "paused" in page.locator("#live").inner_text()
    assert page.evaluate("timers.size") == 0
    page.reload()
    assert "paused" in page.locator("#live").inner_text()
    assert page.evaluate("timers.size") == 0


@pytest.mark.parametrize("dark", [False, True])
def test_colours_follow_the_system_until_toggled_and_the_choice_is_kept(
    show: Open, dark: bool
) -> None:
    page = show(rich_data(), dark=dark)

    def is_dark() -> bool:
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return max(map(int, re.findall(r"\d+", colour)[:3])) < 128

    assert is_dark() is dark
    page.locator("#theme").click()
    assert is_dark() is not dark

    def is_dark_after_a_reload(expected: bool) -> bool:
        # What is stored reaches the next page's process a moment later, so ask more than once.
        return any(page.reload() and is_dark() is expected for _ in range(20))

    assert is_dark_after_a_reload(not dark)
    page.evaluate("localStorage.clear()")
    assert is_dark_after_a_reload(dark)


# -- any width, any name


def test_the_page_never_scrolls_sideways(show: Open) -> None:
    page = show(rich_data(), width=1920)
    overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"

    for width in (1920, 1280, 1060, 800, 390, 320):
        page.set_viewport_size({"width": width, "height": 800})
        until(page, f"innerWidth === {width} && !({overflow})")
        page.locator("tr[data-cell='hostile'] a").click()
        assert page.locator(".detail").evaluate("inside => inside.scrollWidth <= innerWidth")
        assert page.evaluate(overflow) == 0
        page.get_by_role("button", name="Close").click()
        until(page, f"!{DIALOG_IS_OPEN} && !location.hash")


def test_on_a_phone_rows_become_blocks_that_can_be_sorted(show: Open) -> None:
    page = show(rich_data(), width=390)

    first = page.locator(".results tr[data-cell]").first
    assert first.evaluate("row => getComputedStyle(row).display") == "grid"
    page.locator("#sort").select_option("class_il_A_T descending")
    assert shown(page, 1)[0] == "MSDER++(-1)"
    assert "Class-IL A" in page.locator(".results tbody tr").first.inner_text()


def test_hostile_names_are_shown_as_text(show: Open) -> None:
    page = show(rich_data(), f"#at={HOSTILE.replace('&', '%26')}")

    assert page.title() == "Toy results"
    assert page.locator("img").count() == 0
    assert HOSTILE in page.locator("tr[data-cell='hostile']").inner_text()
    assert HOSTILE in page.locator(".running").inner_text()
    assert HOSTILE in page.locator("#figure-confidence .legend").inner_text()
    hover(page, "#figure-confidence .chart .marker", HOSTILE)
    page.locator("tr[data-cell='hostile'] a").click()
    assert page.locator("dialog h2").inner_text() == HOSTILE
    assert page.locator("main b", has_text="&amp;").count() == 0


def test_test_and_validation_are_told_apart_in_the_table_and_in_a_cell(show: Open) -> None:
    records = [make_record(), make_record(make_config(validation=0.1), **HELD_OUT)]
    page = show({**make_data([]), **report_data(records)})
    heads = page.locator(".results th.measure").all_inner_texts()
    assert [" ".join(head.split()) for head in heads] == [
        "test Class-IL AT",
        "test Class-IL FT",
        "test Task-IL AT",
        "test Task-IL FT",
        "validation Class-IL AT",
        "validation Task-IL AT",
    ]
    plain, held_out = (row.split("\t") for row in rows(page))
    assert plain[-2:] == [MISSING, MISSING]
    assert held_out[-2].startswith("60.00")
    assert "on training data that was held out" in page.locator("#results-intro").inner_text()

    page.locator(".results").get_by_role("link", name="ER, validation=0.1").click()
    panels = page.locator(".detail .panel h4").all_inner_texts()
    assert panels == ["test Class-IL", "test Task-IL", "validation Class-IL", "validation Task-IL"]
    numbers = page.locator(".detail .panel:nth-child(3) .number").all_text_contents()
    assert numbers == ["90.0", "40.0", "80.0"]
    page.locator("#detail-close").click()

    page.locator(".results").get_by_role("link", name="ER, validation=0.0").click()
    panels = page.locator(".detail .panel h4").all_inner_texts()
    assert panels == ["Class-IL", "Task-IL"]


def test_a_page_without_validation_does_not_speak_of_it(show: Open) -> None:
    page = show(real_data())
    heads = page.locator(".results th.measure").all_inner_texts()
    assert len(heads) == 4
    assert not [head for head in heads if "test" in head]
    assert "held out" not in page.locator("#results-intro").inner_text()


# -- the same marks as in print


def _drawn_by_the_page(page: "Page", key: str) -> list[Any]:
    """Of each panel: its ticks, its points' values and where they lie, as a share of the frame."""
    found: list[Any] = page.locator(f"#figure-{key} svg.chart").evaluate_all(
        """charts => charts.map((chart) => ({
            kinds: [...chart.querySelectorAll('[data-kind]')].map((mark) => mark.dataset.kind),
            bars: chart.querySelectorAll('.error').length,
            bands: chart.querySelectorAll('.band').length,
            squares: chart.querySelectorAll('.heat-cell').length,
            ticks: [...chart.querySelectorAll('.ticks.y text')].map((tick) =>
                [Number(tick.textContent), Number(tick.getAttribute('y')) - 4]),
            heights: [...chart.querySelectorAll('[data-kind=line] .marker')].map((marker) =>
                Number(marker.getAttribute('transform').split(/[ )]/)[1])),
        }))"""
    )
    return found


def _at(ticks: list[Any], pixel: float) -> float:
    """The value that a pixel stands for, read off two ticks as a person would."""
    (low, bottom), (high, top) = ticks[0], ticks[-1]
    return float(low + (pixel - bottom) * (high - low) / (top - bottom))


@pytest.mark.parametrize("seed", range(3))
def test_the_page_and_print_draw_the_same_marks_of_one_description(show: Open, seed: int) -> None:
    pytest.importorskip("matplotlib")
    random = np.random.default_rng(seed)
    tasks, systems = int(random.integers(2, 6)), int(random.integers(1, 5))
    values = np.where(np.tri(tasks) > 0, 1.0, np.nan)
    records = [
        make_record(
            make_config(seed=trial, lr=0.1 * (system + 1)),
            class_il=random.uniform(40, 100, (tasks, tasks)) * values,
            task_il=random.uniform(90, 100, (tasks, tasks)) * values,
            confidence=random.uniform(0, 1, 2 * tasks).tolist(),
        )
        for system in range(systems)
        for trial in range(int(random.integers(1, 4)))
    ]
    cells = summarise(records)
    page = show({**make_data([]), **report_data(records)})
    for key in ("confidence", "accuracy-over-tasks", "matrices"):
        drawing = plot(cells, key)
        assert drawing is not None
        printed: list[Any] = [axes for axes in drawing.axes if axes.get_title()]
        panels = _drawn_by_the_page(page, key)
        assert len(panels) == len(printed) > 0
        for panel, axes in zip(panels, printed, strict=True):
            if key == "matrices":
                assert panel["squares"] == tasks * (tasks + 1) / 2
                assert (
                    np.isfinite(np.ma.filled(axes.images[0].get_array(), np.nan)).sum()
                    == (panel["squares"])
                )
                continue
            assert panel["kinds"] == ["line"] * systems
            assert [tick for tick, _ in panel["ticks"]] == pytest.approx(axes.get_yticks())
            lines = [line for line in axes.lines if len(line.get_xdata())]
            heights = [float(y) for line in lines for y in np.asarray(line.get_ydata())]
            read = [_at(panel["ticks"], pixel) for pixel in panel["heights"]]
            assert read == pytest.approx(heights, abs=0.5)  # the page rounds to a tenth of a pixel


def test_the_page_draws_every_mark_that_a_description_has(show: Open) -> None:
    masks = (None, -math.inf, -2.0, -1.0)
    records = [
        trial_with_accuracy(
            make_config(mask=mask, buffer=buffer, seed=seed), 60.0 + place + seed, forgetting=9.0
        )
        for place, mask in enumerate(masks)
        for buffer in (20, 50)
        for seed in range(2)
    ]
    data = {**make_data([]), **report_data(records)}
    chosen = urlencode([("memory", 20), *(("system", label) for label in data["looks"])])
    page = show(data, f"#{chosen}")
    of_buffer = {cell["id"] for cell in data["cells"] if cell["buffer"] == 20}
    for figure in (figure for figure in data["figures"] if figure["setting"] == "class_il"):
        drawn = page.locator(f"#figure-{figure['key']} svg.chart").evaluate_all(
            """charts => charts.map((chart) => ({
                points: chart.points.length,
                marks: [...chart.querySelectorAll('[data-kind]')].map(({ dataset, children }) =>
                    [dataset.kind, dataset.series,
                        [...children].filter((part) => part.matches('.marker')).length]),
            }))"""
        )
        described = []
        for panel in figure["panels"]:
            marks = [
                mark
                for mark in panel["marks"]
                if "buffer" not in figure["follows"] or mark["sources"][0]["cell"] in of_buffer
            ]
            if marks:
                shapes = [
                    (mark["kind"], mark["name"], len(mark["x"]) * (mark["kind"] != "level"))
                    for mark in marks
                    if mark["kind"] != "heat"
                ]
                points = sum(len(mark["x"]) for mark in marks)
                described.append({"points": points, "marks": [list(shape) for shape in shapes]})
        assert drawn == described, figure["key"]
        assert drawn != []


def test_the_history_of_a_learner_is_drawn_and_read_off(
    context: "BrowserContext", tmp_path: Path
) -> None:
    write_history("pets", VISITS, tmp_path / "pets.html")
    page = context.new_page()
    failures: list[str] = []
    page.on("pageerror", lambda error: failures.append(str(error)))
    page.goto((tmp_path / "pets.html").as_uri())
    assert page.locator("#facts dd").all_inner_texts() == ["2", "3", "75.0 %", "2026-05-04"]
    assert page.locator("#figure .legend li").all_inner_texts() == [
        "ant",
        "bee",
        "cat",
        "all classes",
    ]
    page.locator("#figure svg.chart").focus()
    page.keyboard.press("ArrowRight")
    assert "100.00 %, 4 held-out samples" in page.locator("#tip").inner_text()
    assert page.locator("#classes tbody tr").nth(1).locator("td").all_inner_texts() == [
        "bee",
        MISSING,
        "50.0",
    ]
    assert not failures
    page.close()


def test_on_a_phone_the_history_has_its_confusion_matrix_and_nothing_is_cut_off(
    browser: "Browser", tmp_path: Path
) -> None:
    names = [f"a class with a long name {number}" for number in range(20)]
    now = LearnerNow(
        memory=[KeptClass(name=name, seen=40, kept=9, bytes=1800) for name in names],
        calibration="Scores are divided by a temperature of 1.20.",
        abstain=[(0.9, 0.63, 0.81), (0.99, None, 0.0)],
        confusion={name: {name: 7, names[0]: 3} for name in names[1:]},
    )
    visit = dataclasses.replace(VISITS[0], accuracy=dict.fromkeys(names, 70.0), choice="m " * 200)
    write_history("pets", [visit], tmp_path / "pets.html", now)
    page = browser.new_page(viewport={"width": 390, "height": 800})
    failures: list[str] = []
    page.on("pageerror", lambda error: failures.append(str(error)))
    page.goto((tmp_path / "pets.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    row = page.locator("#confusion tbody tr").nth(4)
    assert row.locator("th").inner_text() == f"5 {names[4]}"
    assert [text for text in row.locator("td").all_inner_texts() if text] == ["3", "7"]
    assert page.locator("#abstain tbody tr").nth(1).locator("td").all_inner_texts() == [
        "99 %",
        "not reached",
        "0 %",
    ]
    total = page.locator("#memory tbody tr").last.locator("td").all_inner_texts()
    assert total == ["all classes", "800", "180", "36.0\u00a0kB"]
    assert not failures
    page.close()


def _spread_out(method: str, accuracies: list[float], **settings: Any) -> list[Any]:
    """A trial per accuracy, with seeds from 0."""
    return [
        trial_with_accuracy(make_config(method=method, seed=seed, **settings), accuracy)
        for seed, accuracy in enumerate(accuracies)
    ]


def own_data(**parts: Any) -> dict[str, Any]:
    """A system with and without a mask, another one, and a larger buffer."""
    records = [
        *_spread_out("er", [70.0, 72.0, 75.0, 71.0]),
        *_spread_out("er", [74.0, 75.5, 79.5, 75.0], mask=-math.inf),
        *_spread_out("derpp", [75.0, 74.5, 79.0, 76.5], alpha=0.2, beta=0.5),
        *_spread_out("er", [90.0, 91.0], buffer=500),
    ]
    return {**make_data([]), **report_data(records), **parts}


def test_rows_stand_by_buffer_and_a_system_beside_its_masked_form(show: Open) -> None:
    page = show(own_data())

    texts = page.locator(".results tbody tr").all_inner_texts()
    assert [" ".join(text.split()).split(" ")[0] for text in texts] == [
        *("buffer", "DER++", "ER", "MSER(-inf)", "buffer", "ER"),
    ]
    heading(page, "class_il_A_T").locator("button").click()
    assert page.locator(".results .group").count() == 0
    assert shown(page)[0] == "ER"  # of the larger buffer


def test_the_best_at_a_buffer_is_marked_and_what_no_test_tells_from_it(show: Open) -> None:
    page = show(own_data())

    def marked(kind: str) -> list[str]:
        found: list[str] = page.eval_on_selector_all(
            f".results td.measure:nth-child(4) .{kind}",
            "all => all.map(one => one.closest('tr').cells[0].textContent)",
        )
        return found

    assert marked("best") == ["DER++"]  # 76.25, and at the larger buffer there is only one
    assert marked("alike") == ["MSER(-inf)"]  # 76.00


def test_the_mask_s_effect_is_tested_in_pairs(show: Open) -> None:
    data = own_data()
    page = show(data)

    row = page.locator(".contrasts tbody tr")
    assert row.count() == 1
    text = " ".join(row.inner_text().split())
    assert "ER MSER(-inf) +4.00" in text
    page.get_by_role("button", name="Compare MSER(-inf) with ER").click()
    first = page.locator(".compared-cells tbody tr").first.inner_text()
    assert "+4.00" in first
    assert "MSER(-inf)" in first.split("\t")[-1]


@pytest.mark.parametrize("pair", [("er", "derpp"), ("er", "er")], ids=["paired", "Welch"])
def test_the_page_s_own_test_is_that_of_the_library(show: Open, pair: tuple[str, str]) -> None:
    one_method, other_method = pair
    data = own_data()
    facts = [cell for cell in data["cells"] if cell["method"] == one_method]
    others = [c for c in data["cells"] if c["method"] == other_method and c["id"] != facts[0]["id"]]
    one, other = facts[0], others[-1]
    if pair == ("er", "er"):  # no seed in common
        for record in other["records"]:
            record["seed"] += 100
        other["records"].append({**other["records"][0], "seed": 300})
    values = [
        {r["seed"]: r["scores"]["class_il_A_T"] for r in cell["records"]} for cell in (one, other)
    ]
    expected = t_test(*values)
    assert expected is not None
    page = show(data, f"#{urlencode({'one': one['id'], 'other': other['id']})}")

    row = page.locator(".compared-cells tbody tr").first.locator("td").all_inner_texts()
    means = [float(np.mean(list(each.values()))) for each in values]
    assert float(row[3].replace(MINUS, "-")) == pytest.approx(means[0] - means[1], abs=0.006)
    digits = 0.00006 if expected.p_different < 0.01 else 0.006
    assert float(row[5]) == pytest.approx(expected.p_different, abs=digits)
    low, high = (float(text.replace(MINUS, "-")) for text in row[4].split(" to "))
    assert low < means[0] - means[1] < high
    # At the end of the interval the difference is just told apart from none.
    error = abs((means[0] - means[1]) / expected.t)
    half = (high - low) / 2 / error
    assert 2 * upper_tail(half, expected.freedom) == pytest.approx(0.05, abs=0.002)


def test_other_columns_can_be_chosen_and_a_link_keeps_them(show: Open) -> None:
    page = show(own_data())

    page.locator("#columns summary").click()
    page.locator("#column-seconds").check()
    page.locator("#column-task_il_F_T").uncheck()
    heads = page.locator(".results th.measure").all_inner_texts()
    assert [" ".join(head.split()) for head in heads][-1] == "training time"
    assert "12.5 s" in page.locator(".results tbody tr[data-cell]").first.inner_text()
    page.reload()
    assert page.locator(".results th.measure").count() == 4
    assert "column=seconds" in page.url


def test_without_scripts_the_tables_can_be_read(browser: "Browser", tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page_html(own_data()), encoding="utf-8")
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    assert page.locator("h1").inner_text() == "Toy results"
    results, contrasts = page.locator(".without-scripts table").all()
    assert results.locator("tbody tr").count() == 4
    assert "76.25" in results.locator("strong").first.inner_text()
    assert "+4.00" in contrasts.inner_text()
    assert not page.locator("#results").is_visible()
    context.close()
