"""The page: one HTML file that needs no network, no server and no other file."""

import base64
import gzip
import html
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from remask.errors import printable
from remask.reports.figures.description import HEAT, PALETTE
from remask.reports.measures import ALL_MEASURES
from remask.reports.tables import table_html

_STYLES = ("page.css", "results.css", "figures.css")
_SCRIPTS = (  # in this order, in one scope: a file may use what earlier files define
    "dom.js",
    "model.js",
    "state.js",
    "student.js",
    "glance.js",
    "overview.js",
    "contrasts.js",
    "statements.js",
    "best.js",
    "table.js",
    "chart.js",
    "marks.js",
    "reader.js",
    "figures.js",
    "compare.js",
    "detail.js",
    "page.js",
)
_PLACE = re.compile(r"\{\{(\w+)\}\}")
_LARGEST_PLAIN = 1_000_000  # characters of JSON; more are compressed
_UNSAFE_IN_SCRIPT = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def page_html(data: Mapping[str, Any], *, refresh_seconds: float | None = None) -> str:
    """The page of `page_data` with `title`, `generated` and so on added.

    With `refresh_seconds` the page reloads itself at this interval.
    """
    if refresh_seconds is not None and not (0 < refresh_seconds < math.inf):
        raise ValueError(f"refresh_seconds must be positive and finite, got {refresh_seconds}")
    refresh = "" if refresh_seconds is None else f"{refresh_seconds:g}"
    parts = {"refresh": refresh, "plain": plain_html(data)}
    return fill_template("page.html", data, scripts=_SCRIPTS, **parts)


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


def plain_html(data: Mapping[str, Any]) -> str:
    """Results and contrasts as plain tables, for readers without scripts."""
    titles = data.get("measures", {})
    cells = [cell for cell in data.get("cells", ()) if cell["trials"]]
    if not cells:
        return ""
    best = _best(cells, titles)
    rows = [
        [
            *_escaped(cell["benchmark"], cell["label"], cell["buffer"] or "-", cell["trials"]),
            *(_score(cell, name, best) for name in titles),
        ]
        for cell in cells
    ]
    heads = _escaped("Benchmark", "System", "Buffer", "Trials", *titles.values())
    caption = "Results: mean and standard deviation; the best of each buffer in bold"
    parts = [table_html(caption, heads, rows)]
    if contrasts := data.get("contrasts"):
        rows = [
            [
                *_escaped(each["benchmark"], each["plain"], each["masked"], each["buffer"] or "-"),
                *(_difference(each["differences"].get(name)) for name in titles),
            ]
            for each in contrasts
        ]
        heads = _escaped("Benchmark", "Without a mask", "With a mask", "Buffer", *titles.values())
        caption = "What the mask changes, in points (p of a t-test, paired by seed)"
        parts.append(table_html(caption, heads, rows))
    return "".join(parts)


def _best(cells: Iterable[Mapping[str, Any]], measures: Iterable[str]) -> set[tuple[str, str]]:
    """The id and the measure of the best score of each benchmark and buffer."""
    groups: dict[tuple[str, int, str], list[tuple[float, str]]] = {}
    for cell in cells:
        for name in measures:
            if score := cell["scores"].get(name):
                lower = ALL_MEASURES[name].better == "lower"
                key = (cell["benchmark"], cell["buffer"], name)
                value = -score["mean"] if lower else score["mean"]
                groups.setdefault(key, []).append((value, cell["id"]))
    return {(max(found)[1], key[2]) for key, found in groups.items() if len(found) > 1}


def _score(cell: Mapping[str, Any], name: str, best: set[tuple[str, str]]) -> str:
    score = cell["scores"].get(name)
    if not score:
        return "-"
    text = f"{score['mean']:.2f}" + ("" if score["std"] is None else f" ±{score['std']:.2f}")
    return f"<strong>{text}</strong>" if (cell["id"], name) in best else text


def _difference(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "-"
    return f"{found['more']:+.2f}" + ("" if found["p"] is None else f" (p = {found['p']:.2g})")


def _escaped(*values: object) -> list[str]:
    return [html.escape(printable(str(value))) for value in values]
