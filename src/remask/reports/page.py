"""The page: one HTML file that needs no network, no server and no other file."""

import base64
import gzip
import html
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from operator import itemgetter
from typing import Any

from remask.config import TrialConfig, write_mask
from remask.papers.experiments import PaperCell, experiments_of, statements
from remask.record import TrialRecord
from remask.reports.comparison import (
    STATEMENT_TEST,
    VERDICT_TEST,
    ComparedCell,
    Evidence,
    decide,
    decide_by_the_paper,
    expected_by_chance,
    paper_cell,
    published_beside,
    verdicts,
)
from remask.reports.figures import page_figures
from remask.reports.figures.description import (
    FAVOURITES,
    HEAT,
    PALETTE,
    Systems,
    source_of,
)
from remask.reports.measures import (
    ALL_MEASURES,
    CONTRAST_TEST,
    cell_value,
    contrasts,
    place_of,
)
from remask.reports.tables import by_data, chosen_by_validation, shown_measures
from remask.store.cells import COSTS, Cell, Spread, TrialSummary

_STYLES = ("page.css", "results.css", "figures.css")
_SCRIPTS = (  # in this order, in one scope: a file may use what earlier files define
    "dom.js", "model.js", "state.js", "student.js", "glance.js", "overview.js", "contrasts.js",
    "statements.js", "best.js", "table.js", "chart.js", "marks.js", "reader.js", "figures.js",
    "compare.js", "detail.js", "page.js",
)  # fmt: skip
_PLACE = re.compile(r"\{\{(\w+)\}\}")
_LARGEST_PLAIN = 1_000_000  # characters of JSON; more are compressed
_UNSAFE_IN_SCRIPT = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}
Command = Callable[[TrialConfig, Sequence[int]], str]
"""Returns the command that runs the trials of a config with these seeds."""


def page_html(data: Mapping[str, Any], *, refresh_seconds: float | None = None) -> str:
    """The page of `page_data` with `title`, `generated` and so on added.

    With `refresh_seconds` the page reloads itself.
    """
    refresh = "" if refresh_seconds is None else f"{refresh_seconds:g}"
    return fill_template("page.html", data, scripts=_SCRIPTS, refresh=refresh)


def fill_template(
    template: str, data: Mapping[str, Any], *, scripts: Sequence[str], **parts: str
) -> str:
    """Insert the title, styles, scripts, data and other parts into a template of the assets."""
    title = str(data.get("title", "remask"))
    filled = {
        **parts,
        # A file name that is not valid Unicode is replaced, or the page could not be encoded.
        "title": html.escape(title.encode(errors="replace").decode()),
        "style": _assets(*_STYLES) + _colours(),
        "theme": _assets("theme.js"),
        "data": _embedded(data),
        "script": _assets(*scripts),
    }
    # One pass, so that placeholders in the data are left alone.
    return _PLACE.sub(lambda place: filled[place[1]], _assets(template))


def _colours() -> str:
    """The colours of the figures, in light and dark mode."""
    marks = [
        f".colour-{number} {{ color: light-dark({light}, {dark}); }}"
        for number, (light, dark) in enumerate(PALETTE)
    ]
    heat = [f"--heat-{end}: light-dark({light}, {dark});" for end, (light, dark) in enumerate(HEAT)]
    return "\n".join([*marks, f":root {{ {' '.join(heat)} }}"])


def _assets(*names: str) -> str:
    folder = files("remask.reports") / "assets"
    return "\n".join((folder / name).read_text(encoding="utf-8").strip() for name in names) + "\n"


def to_json(data: Mapping[str, Any]) -> str:
    """JSON of values and dataclasses."""
    return json.dumps(data, allow_nan=False, separators=(",", ":"), default=vars)


def _embedded(data: Mapping[str, Any]) -> str:
    """JSON that cannot end its script element."""
    text = to_json(data)
    if len(text) > _LARGEST_PLAIN:  # a thousand cells are 12 MB, a tenth of that compressed
        packed = gzip.compress(text.encode(), compresslevel=6, mtime=0)
        return json.dumps({"gzip": base64.b64encode(packed).decode()})
    return text.translate(_UNSAFE_IN_SCRIPT)


def page_data(
    cells: Sequence[Cell], published: Sequence[Cell], command: Command, *, paper: bool = False
) -> dict[str, Any]:
    """Everything on the page, for `to_json`.

    `published` are the cells with the published settings. With `paper`, the page also lists the
    cells and statements of the paper that were not run.
    """
    cells = sorted(cells, key=lambda cell: place_of(cell.config, cell.label))
    compared = published_beside(published, paper=paper)
    systems = Systems(cells, compared)
    measures = shown_measures(cells)
    metrics = {
        name: measure
        for name, measure in ALL_MEASURES.items()
        if name in measures or any(not math.isnan(cell_value(cell, name).mean) for cell in cells)
    }
    groups = by_data([cell for cell in cells if cell.config.validation]).values()
    chosen = {id(c) for g in groups if len(g) > 1 for c in chosen_by_validation(g)[2]}
    beside = {id(cell.ours): cell for cell in compared if cell.ours}
    listed = [
        (
            place_of(cell.config, cell.label),
            _cell(cell, metrics, command)
            | _published(beside.get(id(cell)))
            | {"chosen": id(cell) in chosen},
        )
        for cell in cells
    ]
    listed += [(place_of(c.paper, c.paper.label), _not_run(c)) for c in compared if not c.ours]
    ours = {paper_cell(cell): cell for cell in published}
    benchmarks = dict.fromkeys(cell.paper.benchmark for cell in compared)
    decided = [row for benchmark in benchmarks for row in _statements(benchmark, ours)]
    return {
        "measures": measures,
        "metrics": metrics,
        "cells": [entry for _, entry in sorted(listed, key=itemgetter(0))],
        "contrasts": [[source_of(cell).cell for cell in pair] for pair in contrasts(cells)],
        "contrast_test": CONTRAST_TEST,
        "figures": page_figures(cells, systems),
        "looks": systems.looks,
        "favourites": FAVOURITES,
        "counts": verdicts(compared),
        "near": sum(figure.is_near for cell in compared for figure in cell.figures.values()),
        "by_chance": expected_by_chance(compared),
        "verdict_test": VERDICT_TEST,
        "test": STATEMENT_TEST,
        "statements": [row for row in decided if paper or row["finding"] != "not run"],
    }


def _cell(cell: Cell, measures: Iterable[str], command: Command) -> dict[str, Any]:
    return {
        "id": source_of(cell).cell,
        **_identity(cell.config, cell.label),
        "trials": cell.trials,
        "diverged": cell.ended["diverged"],
        "failed": cell.ended["failed"],
        "hardware": cell.hardware,
        "scores": {name: _spread(cell_value(cell, name)) for name in measures},
        "tasks": cell.tasks,
        "class_names": cell.class_names,
        "config": cell.config.model_dump(mode="json", exclude={"seed"}),
        "command": command(cell.config, [record.seed for record in cell.records]),
        "records": list(map(_record, cell.records, cell.summaries)),
    }


def _not_run(compared: ComparedCell) -> dict[str, Any]:
    paper = compared.paper
    return {
        **_identity(paper, paper.label),
        **_published(compared),
        "id": f"not-run-{paper.benchmark}-{paper.label}-{paper.buffer}",
        "trials": 0,
        "command": f"remask reproduce {experiments_of(paper)[0]} --benchmark {paper.benchmark}",
    }


def _identity(one: TrialConfig | PaperCell, label: str) -> dict[str, Any]:
    shown = {name: getattr(one, name) for name in ("benchmark", "method", "buffer")}
    return {**shown, "label": label, "mask": write_mask(one.mask)}


def _published(compared: ComparedCell | None) -> dict[str, Any]:
    """What is published about a cell."""
    if compared is None:
        return {"experiments": [], "verdict": None, "claims": {}}
    claims = {
        measure: {
            **{name: getattr(figure.claim, name) for name in ("mean", "trials", "source")},
            "std": _number(figure.claim.std),
            "deviations": _number(figure.deviations),
            "p": figure.test and figure.test.p_different,
            "verdict": figure.verdict,
        }
        for measure, figure in compared.figures.items()
    }
    experiments = experiments_of(compared.paper)
    return {"experiments": experiments, "verdict": compared.verdict, "claims": claims}


def _record(record: TrialRecord, summary: TrialSummary) -> dict[str, Any]:
    costs = {name: value for name in COSTS if (value := getattr(record, name)) is not None}
    found = {**summary.scores, **costs}
    return {
        "hash": summary.config_hash,
        **{n: getattr(record, n) for n in ("seed", "status", "diverged_at", "error", "seconds")},
        "scores": {
            n: round(found[n], 6) for n in ALL_MEASURES if not math.isnan(found.get(n, math.nan))
        },
    }


def _statements(benchmark: str, ours: Mapping[PaperCell, Cell]) -> Iterator[dict[str, Any]]:
    stated = statements(benchmark)
    for decision, by_paper in zip(decide(stated, ours), decide_by_the_paper(stated), strict=True):
        yield {
            "benchmark": benchmark,
            **{n: getattr(decision.statement, n) for n in ("text", "section", "quantifier")},
            "finding": decision.finding,
            "by_the_paper": by_paper.finding,
            "evidence": list(map(_evidence, decision.evidence)),
        }


def _evidence(evidence: Evidence) -> dict[str, Any]:
    expected, test = evidence.expectation, evidence.test
    return {
        "measure": expected.measure,
        "buffer": expected.higher.buffer,
        "higher": expected.higher.label,
        "lower": expected.lower.label,
        "ours_higher": _spread(evidence.higher),
        "ours_lower": _spread(evidence.lower),
        "test": test and test.kind,
        "freedom": test and test.freedom,
        "p": _number(evidence.p),
        "finding": evidence.finding,
    }


def _spread(spread: Spread | None) -> dict[str, Any] | None:
    """A mean with its standard deviation, which a single trial does not have."""
    if spread is None or math.isnan(spread.mean):
        return None
    return {**spread._asdict(), "std": spread.std if spread.trials > 1 else None}


def _number(value: float) -> float | str | None:
    """A number for JSON: None for NaN, text for infinity."""
    if math.isnan(value):
        return None
    return value if math.isfinite(value) else str(value)
