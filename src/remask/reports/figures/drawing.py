"""Figures for print, drawn by matplotlib."""

import importlib
import io
import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from remask.errors import MissingPackageError
from remask.reports.figures.description import (
    HEAT,
    MARKERS,
    PALETTE,
    Array,
    Axis,
    Figure,
    Mark,
    Numbers,
    Panel,
    ends,
    mask_name,
    round_range,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

_GREY, _PALE = "#6b6b6b", "#f0f0f0"
_WIDTH = 7.0  # inches, two columns of text
_LETTER = 0.065  # inches
_MOST_NUMBERED = 10
"""Heat maps of more tasks have no room for numbers."""
_MARKERS = {**dict(zip(MARKERS, "os^Dx+vo", strict=True)), "": ""}
_STYLE = Path(__file__).with_name("print.mplstyle")


def draw(figure: Figure, titles: Sequence[str] = ()) -> "Drawing":
    """Draw the rows of a figure, with a legend above each; `titles` are those of the rows."""
    rows = list(_rows(figure))
    columns = max(len(row) for row in rows)
    weights = [2 if panel.x.spans else 1 for panel in max(rows, key=len)]
    is_heat = bool(figure.panels[0].y.places)
    width = min(_WIDTH, 1 + 2 * columns) if is_heat else _WIDTH
    height = (width - 1) / columns + 0.65 if is_heat else figure.inches
    with _style():
        size = (width, 0.3 + height * len(rows))
        drawing: Drawing = _matplotlib("figure").Figure(figsize=size, layout="constrained")
        layout: Any = drawing.get_layout_engine()
        layout.set(w_pad=0.03, h_pad=0.03, wspace=0.03, hspace=0.03)
        parts: Any = drawing.subfigures(len(rows), 1, squeeze=False)
        named: list[str] = []
        for part, row in zip(parts.flat, rows, strict=True):
            grid = part.subplots(1, columns, squeeze=False, width_ratios=weights)[0]
            for axes in grid[len(row) :]:
                axes.set_axis_off()
            for place, panel in enumerate(row):
                if not place or panel.y.title != row[place - 1].y.title:
                    grid[place].set_ylabel(textwrap.fill(panel.y.title, 12 * math.ceil(height)))
                _panel(grid[place], panel, figure, (width - 0.5) * weights[place] / sum(weights))
            named = _legend(part, row, width, named)
            if titles and (title := titles[row[0].row]):
                part.suptitle(title, x=0.99, ha="right", color=_GREY)
            if is_heat:
                bar = part.colorbar(grid[0].images[0], ax=grid, aspect=25, pad=0.015)
                bar.set_label(f"{figure.heat} (%)")
                bar.outline.set_visible(False)
        drawing.suptitle(_typeset(figure.summary), x=0.008, ha="left", color=_GREY)
    return drawing


def rendered(figure: "Drawing", kind: str) -> bytes:
    """The figure as a file, `svg` or `png`; equal figures give equal bytes."""
    metadata = {"svg": {"Date": None, "Creator": "remask"}, "png": {"Software": "remask"}}[kind]
    stream = io.BytesIO()
    with _style():
        figure.savefig(stream, format=kind, metadata=metadata)
    return stream.getvalue()


def _style() -> Any:
    """A context with one style, independent of the user's matplotlib settings."""
    return _matplotlib("style").context(["default", _STYLE])


def _matplotlib(module: str) -> Any:
    """A module of matplotlib, which is optional."""
    try:
        return importlib.import_module(f"matplotlib.{module}")
    except ImportError:
        raise MissingPackageError("figures need matplotlib: pip install matplotlib") from None


def _rows(figure: Figure) -> Iterator[list[Panel]]:
    """The panels of each row."""
    for number in sorted({panel.row for panel in figure.panels}):
        row = [panel for panel in figure.panels if panel.row == number]
        columns = 6 if figure.same_range else 3
        for start in range(0, len(row), columns):
            yield row[start : start + columns]


def _typeset(text: str) -> str:
    """Typeset masks: `MSER(-inf)` as `MSER(−∞)`."""
    mask = re.compile(r"\((-inf|-?\d[\d.e+]*)\)")
    return mask.sub(lambda found: f"({mask_name(float(found[1]))})", text)


def _legend(part: Any, row: Sequence[Panel], room: float, above: list[str]) -> list[str]:
    """Name the marks and sizes of a row, unless they are those of the row above."""
    looks = {mark.name: _styled(mark) for panel in row for mark in panel.marks if mark.name}
    if not looks or [*looks] == above:
        return above
    names = [*looks]
    for number, size in enumerate(row[0].sizes):
        radius = _size(number, row[0])
        looks[size] = {"color": _GREY, "marker": "o", "linestyle": "", "markersize": radius}
    columns = max(1, int(room / (_LETTER * max(map(len, looks)) + 0.6)))
    part.legend(
        [_matplotlib("lines").Line2D([], [], **look) for look in looks.values()],
        map(_typeset, looks),
        ncols=min(len(looks), columns),
        loc="outside upper left",
        borderaxespad=0.4,
    )
    return names


def _panel(axes: "Axes", panel: Panel, figure: Figure, room: float) -> None:
    has_names_above = bool(panel.x.spans or panel.guides)
    axes.set_title(_typeset(panel.title), fontsize=7, pad=12 if has_names_above else 4)
    axes.set_xlabel(panel.x.title)
    if panel.y.places:
        _heat_map(axes, panel, _lowest(figure.panels))
        return
    shares_range = figure.same_range and not panel.large
    together = [each for each in figure.panels if not each.large] if shares_range else [panel]
    _scale(axes, "y", [e for p in together for m in p.marks for e in ends(m.y, m.std)], panel.y)
    if panel.x.places:
        _places(axes, panel.x, room)
    else:
        _scale(axes, "x", [end for m in panel.marks for end in ends(m.x, m.x_std)], panel.x)
    _guides(axes, panel)
    lines = [mark for mark in panel.marks if mark.kind in ("line", "points")]
    for mark in panel.marks:
        shift = 0.0
        if panel.std_as == "bars" and mark in lines:
            shift = (lines.index(mark) - (len(lines) - 1) / 2) * min(0.16, 0.6 / len(lines))
        _mark(axes, mark, panel, shift)


def _scale(axes: "Axes", name: str, values: Sequence[float], axis: Axis) -> None:
    """A range with round ends, and its ticks."""
    low, high, step = round_range(values, plain=axis.plain)
    margin = 0.03 * (high - low)
    ticks = low + step * np.arange(round((high - low) / step) + 1)
    labels = [f"{tick:g}" for tick in ticks.round(6)]
    limits = (low - margin, high + margin)
    axes.set(**{f"{name}lim": limits, f"{name}ticks": ticks, f"{name}ticklabels": labels})


def _places(axes: "Axes", axis: Axis, room: float) -> None:
    """Label places: slanted if long, and as many as fit."""
    count, longest = len(axis.places), max(map(len, axis.places))
    slanted = _LETTER * (longest + 1) * count > room and longest > 3
    every = math.ceil((2.2 if slanted else longest + 1) * _LETTER * count / room)
    names = [name if len(name) <= 12 else f"{name[:11]}…" for name in axis.places]
    slant: Any = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if slanted else {}
    axes.set_xticks(range(0, count, every), names[::every], **slant)
    axes.set_xlim(-0.5, count - 0.5)
    for number, (start, end, name) in enumerate(axis.spans):
        if number % 2:
            axes.axvspan(start - 0.5, end - 0.5, color=_PALE, linewidth=0, zorder=0)
        if (end - start) / count * room > _LETTER * len(name):
            _above(axes, (start + end - 1) / 2, name)


def _above(axes: "Axes", x: float, text: str) -> None:
    """Write a text above the frame."""
    place: Any = axes.get_xaxis_transform()
    axes.text(x, 1.02, text, ha="center", color=_GREY, fontsize=6, transform=place)


def _guides(axes: "Axes", panel: Panel) -> None:
    """Straight lines, labelled where they leave the frame, unless the labels would overlap."""
    (left, right), top = axes.get_xlim(), axes.get_ylim()[1]
    last = math.inf
    for name, x0, y0, x1, y1 in panel.guides:
        leaves = x0 + (x1 - x0) * (top - y0) / (y1 - y0)
        gap = _LETTER * len(name) / _WIDTH * (right - left)
        if left < leaves < right and last - leaves > gap:
            last = leaves
            axes.axline((x0, y0), (x1, y1), color="#dcdcdc", linewidth=0.6)
            _above(axes, leaves, name)


def _styled(mark: Mark) -> dict[str, Any]:
    """The arguments of matplotlib for a mark."""
    look = mark.look
    colour = _GREY if look.colour is None else PALETTE[look.colour][0]
    hollow = look.colour is None or look.marker == "ring"
    joined = mark.kind in ("line", "level")
    return {
        "color": colour,
        "linestyle": "" if not joined else (0, look.dash) if look.dash else "-",
        "marker": _MARKERS[look.marker],
        "markerfacecolor": "white" if hollow else colour,
        "label": mark.name,
    }


def _array(values: Numbers) -> Array:
    return np.array(values, dtype=np.float64)  # None becomes NaN


def _mark(axes: "Axes", mark: Mark, panel: Panel, shift: float) -> None:
    x, y, looks = _array(mark.x) + shift, _array(mark.y), _styled(mark)
    std = np.nan_to_num(_array(mark.std)) if mark.std else np.zeros(len(y))
    if mark.kind == "level":
        axes.axhline(y[0], color=_GREY, linestyle=":", linewidth=1.2, zorder=1, label=mark.name)
    elif mark.kind == "thread":
        axes.plot(x, y, color=looks["color"], linewidth=0.7, alpha=0.6, zorder=2)
        across = np.nan_to_num(_array(mark.x_std))
        for at, size in enumerate(mark.sizes):
            bars = {"xerr": across[at], "yerr": std[at], "elinewidth": 0.5}
            axes.errorbar(x[at], y[at], **bars, **looks, markersize=_size(size, panel), zorder=3)
    elif mark.kind == "points" or panel.std_as == "bars" or len(y) == 1:  # a band needs two ends
        above = 4 if mark.kind == "points" else 2
        axes.errorbar(x, y, std, **looks, linewidth=0.8, elinewidth=0.8, zorder=above)
    else:
        axes.fill_between(x, y - std, y + std, color=looks["color"], alpha=0.15, linewidth=0)
        axes.plot(x, y, **looks, markevery=max(1, len(panel.x.places) // 10))


def _size(number: int, panel: Panel) -> float:
    return 3.0 + 5.0 * number / max(1, len(panel.sizes) - 1)


def _lowest(panels: Sequence[Panel]) -> float:
    """The lowest value of the colour scale of all heat maps: a multiple of 10, at most 90."""
    values = [value for panel in panels for mark in panel.marks for value in mark.values]
    return min(10 * math.floor(min(value or 0.0 for value in values) / 10), 90)


def _heat_map(axes: "Axes", panel: Panel, low: float) -> None:
    (mark,) = panel.marks
    tasks = len(panel.x.places)
    matrix = np.full((tasks, tasks), math.nan)
    matrix[_array(mark.y).astype(int), _array(mark.x).astype(int)] = mark.values
    colours = _matplotlib("colors").LinearSegmentedColormap.from_list("", [end[0] for end in HEAT])
    axes.imshow(matrix, cmap=colours, vmin=low, vmax=100)
    step = 1 if tasks <= _MOST_NUMBERED else 5
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(range(step - 1, tasks, step), panel.x.places[step - 1 :: step])
    axes.tick_params(length=0)
    if max(map(len, panel.x.places)) > 3:
        axes.tick_params(axis="x", rotation=90)
    axes.spines[:].set_visible(False)
    for (after, task), value in np.ndenumerate(matrix):
        if tasks <= _MOST_NUMBERED and not np.isnan(value):
            is_dark = value - low > 0.6 * (100 - low)
            text = f"{value:.{1 if tasks <= 5 else 0}f}"
            centre: Any = {"ha": "center", "va": "center", "fontsize": 7}
            axes.text(task, after, text, color="white" if is_dark else "black", **centre)
