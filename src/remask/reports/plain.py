"""The results as plain HTML tables: what the page shows to a reader without scripts."""

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from remask.printable import printable
from remask.reports.measures import ALL_MEASURES


def plain_html(data: Mapping[str, Any]) -> str:
    """Results and contrasts of what `page_data` returns, the best of each group marked."""
    titles = data.get("measures", {})
    cells = [cell for cell in data.get("cells", ()) if cell["trials"]]
    best = _best(cells, titles)
    rows = [
        [
            _escaped(cell["benchmark"]),
            _escaped(cell["label"]),
            _escaped(cell["buffer"] or "-"),
            _escaped(cell["trials"]),
            *(_figure(cell, name, best) for name in titles),
        ]
        for cell in cells
    ]
    heads = ["Benchmark", "System", "Buffer", "Trials", *titles.values()]
    parts = [
        _table("Results: mean and standard deviation; the best of a buffer in bold", heads, rows)
    ]
    if contrasts := data.get("contrasts"):
        lines = [_contrast(each, titles) for each in contrasts]
        heads = ["Benchmark", "Without a mask", "With a mask", "Buffer", *titles.values()]
        caption = "What the mask changes, in points (p of a t-test, paired by seed)"
        parts.append(_table(caption, heads, lines))
    return "".join(parts) if cells else ""


def _best(cells: Iterable[Mapping[str, Any]], measures: Iterable[str]) -> set[tuple[str, str]]:
    """The id and the measure of every best figure among the cells of a benchmark and a buffer."""
    groups: dict[tuple[str, int, str], list[tuple[float, str]]] = {}
    for cell in cells:
        for name in measures:
            if known := cell["scores"].get(name):
                lower = ALL_MEASURES[name].better == "lower"
                value = -known["mean"] if lower else known["mean"]
                key = (cell["benchmark"], cell["buffer"], name)
                groups.setdefault(key, []).append((value, cell["id"]))
    return {(max(found)[1], key[2]) for key, found in groups.items() if len(found) > 1}


def _figure(cell: Mapping[str, Any], name: str, best: set[tuple[str, str]]) -> str:
    known = cell["scores"].get(name)
    if not known:
        return "-"
    spread = "" if known["std"] is None else f" ±{known['std']:.2f}"
    text = f"{known['mean']:.2f}{spread}"
    return f"<strong>{text}</strong>" if (cell["id"], name) in best else text


def _contrast(contrast: Mapping[str, Any], measures: Iterable[str]) -> list[str]:
    found = [contrast["differences"].get(name) for name in measures]
    return [
        *map(_escaped, (contrast["benchmark"], contrast["plain"], contrast["masked"])),
        _escaped(contrast["buffer"] or "-"),
        *("-" if each is None else _difference(each) for each in found),
    ]


def _difference(each: Mapping[str, Any]) -> str:
    return f"{each['more']:+.2f}" + ("" if each["p"] is None else f" (p = {each['p']:.2g})")


def _table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def row(tag: str, texts: Iterable[str]) -> str:
        return f"<tr>{''.join(f'<{tag}>{text}</{tag}>' for text in texts)}</tr>"

    body = "".join(row("td", texts) for texts in rows)
    head = row("th", map(_escaped, heads))
    return f"<table><caption>{caption}</caption><thead>{head}</thead><tbody>{body}</tbody></table>"


def _escaped(value: object) -> str:
    return html.escape(printable(str(value)))
