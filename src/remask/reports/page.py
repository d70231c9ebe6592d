"""The results as one HTML file that needs nothing else: no network, no server, no other file."""

import base64
import gzip
import html
import json
import math
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from remask.reports.figures.description import HEAT, PALETTE
from remask.reports.plain import plain_html

_STYLES = ("page.css", "results.css", "figures.css")
_SCRIPTS = (  # in this order, in one scope: a file may use what those before it define
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
    """Write the page of what `page_data` returns, with `title`, `generated` and so on added.

    With `refresh_seconds` the page reloads itself that often, and keeps what the reader chose.
    """
    if refresh_seconds is not None and not (0 < refresh_seconds < math.inf):
        raise ValueError(f"refresh_seconds is a positive number of seconds, not {refresh_seconds}")
    refresh = "" if refresh_seconds is None else f"{refresh_seconds:g}"
    parts = {"refresh": refresh, "plain": plain_html(data)}
    return assembled("page.html", data, styles=_STYLES, scripts=_SCRIPTS, **parts)


def assembled(
    template: str,
    data: Mapping[str, Any],
    *,
    styles: Sequence[str],
    scripts: Sequence[str],
    **parts: str,
) -> str:
    """Fill a template of the assets with styles, scripts, data, and what else it has places for."""
    filled = {
        **parts,
        "title": _text(str(data.get("title", "remask"))),
        "style": _assets(*styles) + _colours(),
        "theme": _assets("theme.js"),
        "data": _json(data),
        "script": _assets(*scripts),
    }
    # One pass, so that a placeholder in the data is left alone.
    return _PLACE.sub(lambda place: filled[place[1]], _assets(template))


def _colours() -> str:
    """The colours of the figures, on white paper and on black."""
    marks = [
        f".colour-{number} {{ color: light-dark({light}, {dark}); }}"
        for number, (light, dark) in enumerate(PALETTE)
    ]
    heat = [f"--heat-{end}: light-dark({light}, {dark});" for end, (light, dark) in enumerate(HEAT)]
    return "\n".join([*marks, f":root {{ {' '.join(heat)} }}"])


def _assets(*names: str) -> str:
    folder = files("remask.reports") / "assets"
    return "\n".join((folder / name).read_text(encoding="utf-8").strip() for name in names) + "\n"


def _json(data: Mapping[str, Any]) -> str:
    """JSON that stays inside its script element, whatever its strings say."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    if len(text) > _LARGEST_PLAIN:  # a thousand cells are 12 MB, a tenth of that compressed
        packed = gzip.compress(text.encode(), compresslevel=6, mtime=0)
        return json.dumps({"gzip": base64.b64encode(packed).decode()})
    return text.translate(_UNSAFE_IN_SCRIPT)


def _text(text: str) -> str:
    """Text as HTML; a file name that is not valid Unicode must not keep the page unwritten."""
    return html.escape(text.encode(errors="replace").decode())
