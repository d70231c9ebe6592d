"""The page as a file: one, whole, and closed to whatever its data says."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from html.parser import HTMLParser
from importlib.resources import files
from typing import Any

import pytest

from remask.classes import spread_classes
from remask.config import TrialConfig
from remask.papers.published import Claim
from remask.reports.comparison import ComparedCell, Comparison, paper_cell
from remask.reports.figures import page_figures
from remask.reports.figures.systems import FAVOURITES, Systems
from remask.reports.history import history_html
from remask.reports.page import page_html
from remask.results import Cell, summary_of
from remask.setting_types import read_mask
from tests.reports.samples import report_data
from tests.results.store_samples import diverged, failed, make_config, make_record, make_records

MEASURES = {
    "class_il_A_T": "Class-IL A_T",
    "class_il_F_T": "Class-IL F_T",
    "task_il_A_T": "Task-IL A_T",
    "task_il_F_T": "Task-IL F_T",
}
HOSTILE = '<img src=x onerror="document.title=666"></script><b>&amp;'
TASKS, CLASSES = 3, 6
_VERDICTS = ("no significant difference", "better", "worse", "too few trials", "not run")


def make_cell(label: str, mean: float, **parts: Any) -> dict[str, Any]:
    """A cell whose every number follows from `mean`, its Class-IL A_T."""
    numbers = (mean, 100 - mean, mean / 2 + 50, 5.0)
    spreads = dict(zip(MEASURES, ({"mean": value, "std": 1.0} for value in numbers), strict=True))
    plasticity = {
        f"{setting}_plasticity": {"mean": 95.0, "std": 2.0} for setting in ("class_il", "task_il")
    }
    class_il = [
        [max(0.0, mean - 5 * (after - task)) if task <= after else None for task in range(TASKS)]
        for after in range(TASKS)
    ]
    basics = {
        "benchmark": "split-toy",
        "label": label,
        "method": "toy",
        "mask": None,
        "mask_name": "no mask",
        "buffer": 200,
        "id": re.sub(r"\W", "", f"{label}{parts.get('buffer', 200)}{parts.get('benchmark', '')}"),
        "experiments": [],
        "trials": 2,
        "diverged": 0,
        "failed": 0,
        "verdict": None,
        "scores": {**spreads, **plasticity},
        "claims": {},
        "class_il": class_il,
        "task_il": [[None if value is None else 99.0 for value in row] for row in class_il],
        "confidence": [{"mean": mean - index, "std": 0.5} for index in range(CLASSES)],
        "config": {
            "benchmark": "split-toy",
            "lr": 0.1,
            "weights": {"gamma": 0.5},
            "class_order": None,
        },
        "command": f"remask run --method toy --trials 2  # {label}",
        "records": [make_trial(seed, mean) for seed in range(2)],
    }
    cell = {**basics, **parts}
    num_tasks, num_classes = len(cell["class_il"]), len(cell["confidence"])
    known = 1 <= num_tasks <= num_classes
    classes = {
        "tasks": spread_classes(num_classes, num_tasks) if known else None,
        "class_names": [str(label) for label in range(num_classes)] if known else None,
    }
    return {**classes, **cell}


def make_trial(seed: int, mean: float, **parts: Any) -> dict[str, Any]:
    basics = {
        "hash": f"{seed:064x}",
        "seed": seed,
        "status": "finished",
        "diverged_at": None,
        "error": None,
        "seconds": 1.5,
        "scores": dict.fromkeys(MEASURES, mean + seed),
    }
    return {**basics, **parts}


def claim(mean: float, deviations: float | str | None, verdict: str) -> dict[str, Any]:
    return {
        "mean": mean,
        "std": 1.0,
        "trials": 10,
        "source": "paper-dagger",
        "deviations": deviations,
        "p": 0.04,
        "verdict": verdict,
    }


def not_run(label: str, mean: float) -> dict[str, Any]:
    return {
        "benchmark": "split-toy",
        "label": label,
        "method": "toy",
        "mask": "-inf",
        "buffer": 10,
        "id": f"not-run-{label}",
        "experiments": ["low-buffer"],
        "trials": 0,
        "verdict": "not run",
        "claims": {"class_il_A_T": claim(mean, None, "not run")},
        "command": "remask reproduce low-buffer --benchmark split-toy",
    }


def _real_cell(cell: Mapping[str, Any]) -> Cell:
    """A cell of trials that have what the page's cell says, to draw figures of."""
    names = ("benchmark", "method", "mask", "buffer")
    # A config refuses some hostile names that a damaged store could have all the same.
    config = make_config().model_copy(
        update={**{name: cell[name] for name in names}, "mask": read_mask(cell["mask"])}
    )
    learnt = {name: cell[name] for name in ("class_il", "task_il", "tasks", "class_names")}
    trials = cell["trials"]
    records = [
        make_record(
            make_config(seed=seed),
            confidence=[
                max(0.0, one["mean"] + (0 if trials == 1 else one["std"] * (-1) ** seed)) / 100
                for one in cell["confidence"]
            ],
            **learnt,
        )
        for seed in range(trials)
    ]
    return Cell(config, cell["label"], tuple(map(summary_of, records)), tuple(records))


def figures_of(cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What page_data says of figures, for cells that were made by hand."""
    run = [cell for cell in cells if cell["trials"]]
    real = [_real_cell(cell) for cell in run]
    compared = [
        ComparedCell(
            paper_cell(ours),
            ours,
            {
                measure: Comparison(
                    Claim("", "", None, 0, "", "", told["mean"], told["std"], told["trials"], ""),
                    None,
                )
                for measure, told in cell["claims"].items()
            },
        )
        for cell, ours in zip(run, real, strict=True)
    ]
    systems = Systems(real, compared)
    ids = {systems.source(ours).cell: cell for cell, ours in zip(run, real, strict=True)}
    figures = page_figures(real, systems)
    for figure in figures:
        for mark in (mark for panel in figure["panels"] for mark in panel["marks"]):
            for source in mark["sources"]:
                source["cell"] = ids[source["cell"]]["id"]
    looks = {label: asdict(look) for label, look in systems.looks.items()}
    return {"figures": figures, "looks": looks, "favourites": FAVOURITES}


def make_data(cells: Sequence[Mapping[str, Any]], **parts: Any) -> dict[str, Any]:
    basics = {
        **figures_of(cells),
        "measures": MEASURES,
        "cells": cells,
        "counts": dict.fromkeys(_VERDICTS, 0),
        "near": 0,
        "by_chance": 0,
        "verdict_test": "a test of figures",
        "test": "a test of tests",
        "statements": [],
        "title": "Toy results",
        "generated": "2026-01-31T12:00:00+00:00",
        "store": "toy.db",
        "version": "0.1.0",
        "running": [],
    }
    return {**basics, **parts}


def rich_data() -> dict[str, Any]:
    """Every kind of cell there is, with claims, statements and a run in progress."""
    empty: dict[str, Any] = {"class_il": [], "task_il": [], "confidence": []}
    nothing = dict.fromkeys([*MEASURES, "class_il_plasticity", "task_il_plasticity"])
    worse = {
        "class_il_A_T": claim(95.0, "-inf", "worse"),
        "task_il_A_T": claim(90.0, 0.5, "no significant difference"),
    }
    good = {"class_il_A_T": claim(80.5, -0.5, "no significant difference")}
    main = {"experiments": ["main", "ablation"]}
    masked = [
        make_cell("MSDER++(-inf)", 84.0, mask="-inf", method="derpp", **main),
        make_cell("MSDER++(-1)", 88.0, mask="-1.0", method="derpp", **main),
        make_cell("MSDER++(-1000)", 86.0, mask="-1000.0", method="derpp", experiments=["ablation"]),
    ]
    return make_data(
        [
            make_cell("ER", 80.0, claims=good, verdict="no significant difference", **main),
            make_cell("ER", 9.5, buffer=500, claims=worse, verdict="worse", experiments=["main"]),
            make_cell("MSER(-inf)", 82.0, mask="-inf", method="er", **main),
            make_cell("DER++", 85.0, method="derpp", **main),
            *masked,
            make_cell("SGD", 20.0, buffer=0),
            make_cell(
                "broken",
                0.0,
                trials=0,
                failed=1,
                diverged=1,
                scores=nothing,
                **empty,
                records=[
                    make_trial(0, 0.0, status="failed", error="no <b>memory</b> left", scores={}),
                    make_trial(1, 0.0, status="diverged", diverged_at=7, scores={}),
                ],
            ),
            make_cell(HOSTILE, 50.0, benchmark=HOSTILE, id="hostile", buffer=7),
            not_run("MSDER++(-inf)", 70.0),
        ],
        counts=dict(zip(_VERDICTS, (2, 0, 1, 0, 1), strict=True)),
        near=2,
        by_chance=1,
        running=[{"name": HOSTILE, "done": 3, "trials": 10}],
        statements=[
            {
                "benchmark": "split-toy",
                "text": "Masking lowers forgetting.",
                "section": "Benchmarks",
                "quantifier": "every",
                "finding": "holds",
                "by_the_paper": "contradicted",
                "evidence": [
                    {
                        "measure": "class_il_F_T",
                        "buffer": 200,
                        "higher": "ER",
                        "lower": "MSER(-inf)",
                        "ours_higher": {"mean": 20.0, "std": 1.0, "trials": 9},
                        "ours_lower": {"mean": 18.0, "std": None, "trials": 1},
                        "test": "paired",
                        "freedom": 9,
                        "p": 0.0123,
                        "finding": "holds",
                    }
                ],
            }
        ],
    )


def real_data() -> dict[str, Any]:
    """What page_data makes of records, with a failed and a diverged trial among them."""
    records = [
        *make_records(3, method="er"),
        *make_records(3, method="er", mask=-math.inf),
        *make_records(3, method="derpp", alpha=0.2, beta=0.5),
        diverged(make_config(method="er", seed=8)),
        failed(TrialConfig.model_validate({**make_config().model_dump(), "buffer": 500})),
    ]
    return {**make_data([]), **report_data(records)}


class Elements(HTMLParser):
    """What a browser would see: start tags with attributes, and the text of each script."""

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


def embedded(page: str) -> Any:
    return json.loads(Elements(page).scripts[1])


@pytest.mark.parametrize("data", [rich_data(), real_data(), make_data([])])
def test_the_data_comes_back_out_of_the_page_as_it_went_in(data: dict[str, Any]) -> None:
    assert embedded(page_html(data)) == json.loads(json.dumps(data))


@pytest.mark.parametrize(
    "text",
    [
        "</script><script>alert(1)</script>",
        "<!--<script>",
        "]]>",
        "{{script}}",
        "a\u2028b\u2029c",
        "\\u003c",
        "&lt;",
        'quote " and \\',
        "naïve \U0001f642",
    ],
)
def test_no_text_breaks_out_of_the_data(text: str) -> None:
    page = page_html(make_data([make_cell(text, 50.0)], title=text, store=text))

    assert len(Elements(page).scripts) == len(Elements(page_html(make_data([]))).scripts)
    assert embedded(page)["cells"][0]["label"] == text
    inside = page.partition('id="data">')[2].partition("</script>")[0]
    assert not set(inside) & set("<>&\u2028\u2029")


def test_a_title_that_is_not_valid_unicode_can_still_be_written() -> None:
    page = page_html(make_data([], title="caf\udce9", store="caf\udce9.db"))

    assert "<title>caf?</title>" in page
    page.encode()


def test_the_title_is_escaped() -> None:
    assert "<title>&lt;/title&gt;&lt;b&gt;</title>" in page_html(make_data([], title="</title><b>"))


def test_the_page_refers_to_nothing_outside_itself() -> None:
    page = page_html(rich_data(), refresh_seconds=5)

    assert "://" not in page
    assert not re.search(r"url\(|@import|\bimport\b|\bfetch\(|XMLHttpRequest|sendBeacon", page)
    for tag, attributes in Elements(page).tags:
        assert "src" not in attributes
        assert (attributes.get("href") or "#")[:1] == "#" or attributes["href"] == "data:,", tag


def test_a_policy_forbids_the_page_all_traffic() -> None:
    policies = [
        attributes["content"] or ""
        for tag, attributes in Elements(page_html(make_data([]))).tags
        if attributes.get("http-equiv") == "Content-Security-Policy"
    ]

    assert len(policies) == 1
    rules = {rule.split()[0]: rule.split()[1:] for rule in policies[0].split(";")}
    assert rules["default-src"] == ["'none'"]
    assert rules["script-src"] == rules["style-src"] == ["'unsafe-inline'"]
    assert rules["img-src"] == ["data:"]
    assert not set(rules) & {"connect-src", "font-src", "frame-src", "object-src"}


def test_scripts_never_turn_text_into_markup() -> None:
    pages = page_html(make_data([])), history_html("pets", [])
    scripts = "\n".join(script for page in pages for script in Elements(page).scripts)

    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", scripts
    )


def test_every_script_and_style_of_the_folder_is_in_a_page() -> None:
    pages = page_html(make_data([])) + history_html("pets", [])
    assets = [asset for asset in (files("remask.reports") / "assets").iterdir() if asset.is_file()]

    assert len(assets) > 10
    for asset in assets:
        if not asset.name.endswith(".html"):
            assert asset.read_text("utf-8").strip() in pages, asset.name


def test_no_place_of_the_template_is_left_open() -> None:
    assert not re.search(r"\{\{\w+\}\}", page_html(make_data([])))


def test_the_page_without_results_is_small() -> None:
    assert len(page_html(make_data([]))) < 150_000


def test_a_number_that_json_cannot_carry_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        page_html(make_data([make_cell("ER", math.nan)]))


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_a_refresh_that_never_or_always_happens_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="refresh_seconds"):
        page_html(make_data([]), refresh_seconds=seconds)


def test_the_page_says_how_often_it_is_refreshed_only_if_it_is() -> None:
    assert 'data-refresh-seconds="2.5"' in page_html(make_data([]), refresh_seconds=2.5)
    assert 'data-refresh-seconds=""' in page_html(make_data([]))
