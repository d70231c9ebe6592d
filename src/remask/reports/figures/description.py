"""Figures as plain data, which the page's scripts and matplotlib both draw, and their systems.

Readers of the page can hide systems, so axis ranges depend on what is shown: `round_range`
computes them here, and `chart.js` in the same way on the page.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from remask.reports.comparison import ComparedCell
from remask.reports.measures import alike_but_mask, system_order
from remask.store.cells import Cell, Spread, grouped, spreads

_LIGHT = ["#0067a5", "#c24e00", "#007f5c", "#a9447f", "#946200", "#3d3d3d", "#6a51a3"]
_DARK = ["#56b4e9", "#ff8f4d", "#2fc79c", "#e79cc9", "#f0b429", "#d9d9d9", "#b9a6ee"]
PALETTE = tuple(zip(_LIGHT, _DARK, strict=True))
"""Okabe and Ito's colours, darkened for light mode and lightened for dark mode."""
HEAT = (("#eef3f7", "#20272f"), ("#004a7c", "#7cc8f8"))
"""The lowest value of a heat map and 100 %; in light and in dark mode."""
DASHES = ((5.0, 3.0), (), (9.0, 3.0, 2.0, 3.0), (2.0, 2.5), (12.0, 3.0))
MARKERS = ("circle", "square", "triangle", "diamond", "cross", "plus", "down", "ring")
FAVOURITES = ("ER", "MSER(-inf)", "DER++", "MSDER++(-inf)", "MSDER++(-1)")
"""The systems that the paper compares; they get the clearest colours."""
MINUS = "\N{MINUS SIGN}"
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")

Array = NDArray[np.float64]
Numbers = tuple[float | None, ...]


@dataclass(frozen=True)
class Look:
    """Colour, dash and marker of a system."""

    colour: int | None  # index in PALETTE; None: the colour of text
    dash: tuple[float, ...] = ()
    marker: str = "circle"

    @classmethod
    def number(cls, n: int) -> "Look":
        """The n-th look; they repeat after 7 x 5 x 8."""
        return cls(n % len(PALETTE), DASHES[n % len(DASHES)], MARKERS[n % len(MARKERS)])


@dataclass(frozen=True)
class Source:
    """The cell that a point was measured on."""

    cell: str  # its id on the page
    label: str
    trials: int  # number of `unit`s
    unit: str = "trial"


@dataclass(frozen=True)
class Mark:
    """A series of points.

    `line`: joined, with the standard deviation as a band or bars. `points`: markers with bars.
    `level`: a horizontal line. `thread`: markers joined by a thin line, with bars in both
    directions. `heat`: squares at (x, y), coloured by `values`.
    """

    kind: Literal["line", "points", "level", "thread", "heat"]
    name: str  # in the legend; empty: not in the legend
    look: Look
    sources: tuple[Source, ...]  # one per point, or one for all
    x: Numbers
    y: Numbers
    std: Numbers = ()
    x_std: Numbers = ()
    values: Numbers = ()
    sizes: tuple[int, ...] = ()  # indices in the panel's `sizes`
    note: str = ""  # for the caption


@dataclass(frozen=True)
class Axis:
    """Named places, a scale in percent, or a scale of plain numbers."""

    title: str
    places: tuple[str, ...] = ()
    where: tuple[str, ...] = ()  # names of the places in tooltips
    name: str = ""  # name of a value in tooltips, where both axes are scales
    plain: bool = False  # numbers from 0 on that are not percentages, such as losses
    spans: tuple[tuple[int, int, str], ...] = ()  # groups of places: first, last + 1, name


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    x: Axis
    y: Axis
    marks: tuple[Mark, ...]
    row: int = 0  # panels of a row are side by side in print, under one legend
    std_as: Literal["band", "bars"] = "band"  # of lines; lines with bars are shifted apart
    sizes: tuple[str, ...] = ()  # meanings of marker sizes
    guides: tuple[tuple[str, float, float, float, float], ...] = ()
    """Thin straight lines in the background: name, x and y of both ends."""
    large: bool = False  # whether it takes the space of four panels on the page


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Panels. Their title and caption are on the page, see `page.html`."""

    key: str
    summary: str  # benchmark, buffer and number of trials
    panels: tuple[Panel, ...]
    remark: str = ""  # added to the caption
    of_test: bool = True  # whether it shows measurements on the test set
    same_range: bool = False  # whether all panels have the same vertical range
    inches: float = 1.9  # height of a row in print
    heat: str = "accuracy"  # what the colours of heat maps show, in percent


def round_range(values: Iterable[float], plain: bool = False) -> tuple[float, float, float]:
    """A range with round ends that contains all percentages or plain numbers, and its tick step.

    It spans at least 2 points, so that negligible differences look negligible.
    """
    values = list(values) or [0.0, 100.0]
    least, most = (0.1, math.inf) if plain else (2.0, 100.0)
    apart = max(0.0, least - (max(values) - min(values))) / 2
    low, high = max(0.0, min(values) - apart), min(most, max(values) + apart)
    power = 10.0 ** math.floor(math.log10((high - low) / 4))
    step = power * next(f for f in (1, 2, 2.5, 5, 10) if f * power >= (high - low) / 4)
    start = math.floor(low / step + 1e-9) * step
    return start, min(most, math.ceil(high / step - 1e-9) * step), step


def ends(values: Numbers, stds: Numbers) -> list[float]:
    """Each value minus and plus its standard deviation."""
    known = stds or (None,) * len(values)
    pairs = [(v, std or 0.0) for v, std in zip(values, known, strict=True) if v is not None]
    return [value + sign * std for value, std in pairs for sign in (-1, 1)]


def numbers(values: Iterable[float]) -> Numbers:
    """The values rounded, None instead of NaN."""
    return tuple(None if math.isnan(value) else round(float(value), 4) for value in values)


def heights(spreads: Sequence[Spread]) -> dict[str, Numbers]:
    """The `y` and `std` of a mark; a single trial has no standard deviation."""
    stds = [one.std if one.trials > 1 else math.nan for one in spreads]
    return {"y": numbers(one.mean for one in spreads), "std": numbers(stds)}


@dataclass(frozen=True)
class Row:
    """Cells that are drawn in the same panels."""

    cells: tuple[Cell, ...]
    title: str = ""  # what distinguishes it from other rows, `lr=0.1`; its legend omits settings

    @property
    def plain(self) -> Cell | None:
        """Its first cell, if that has no mask."""
        return self.cells[0] if self.cells[0].config.mask is None else None

    @property
    def masked(self) -> tuple[Cell, ...]:
        """All other cells."""
        return self.cells[self.plain is not None :]

    def name(self, cell: Cell) -> str:
        """The name of a cell in the legend."""
        return cell.label.partition(", ")[0] if self.title else cell.label


def by_row(rows: Sequence[Row], panels_of: Callable[[Row], Iterable[Panel]]) -> tuple[Panel, ...]:
    """The panels of all rows, with the numbers of their rows."""
    return tuple(
        replace(panel, row=number) for number, row in enumerate(rows) for panel in panels_of(row)
    )


def families(cells: Iterable[Cell]) -> list[Row]:
    """Group the cells that differ only in the mask and have learnt the same, in order of masks.

    Cells without a Class-IL accuracy or with the mask "auto" are left out.
    """
    measured = (
        cell
        for cell in cells
        if cell.config.mask != "auto" and not math.isnan(cell.spreads["class_il_A_T"].mean)
    )
    groups = [sorted(group, key=system_order) for group in alike_but_mask(measured)]
    titles = [max((cell.label.partition(", ")[2] for cell in group), key=len) for group in groups]
    return [Row(tuple(group), title) for group, title in zip(groups, titles, strict=True)]


def source_of(cell: Cell) -> Source:
    """The source of points of this cell."""
    place = f"{cell.config.cell.hash[:12]}-{cell.learnt[:6]}"
    return Source(place, cell.label, cell.trials)


class Systems:
    """The looks of cells, the same in all figures of a report, and published figures."""

    def __init__(self, cells: Sequence[Cell], compared: Iterable[ComparedCell] = ()) -> None:
        self._published = {id(cell.ours): cell.figures for cell in compared}
        run = sorted((cell for cell in cells if cell.trials), key=system_order)
        labels = dict.fromkeys(cell.label for cell in run)
        first = dict.fromkeys([*(name for name in FAVOURITES if name in labels), *labels])
        looks = {label: Look.number(number) for number, label in enumerate(first)}
        self.looks = {label: looks[label] for label in labels}

    def rows(self, cells: Sequence[Cell], title: str = "") -> list[Row]:
        """A row per group of cells that have learnt the same, by family and mask."""
        run = sorted((cell for cell in cells if cell.trials), key=system_order)
        groups = grouped(run, lambda cell: cell.learnt).values()
        return [Row(tuple(group), title) for group in groups]

    def published(self, cell: Cell, measure: str) -> Spread | None:
        """The published figure of a cell, if any."""
        figure = self._published.get(id(cell), {}).get(measure)
        return figure.published if figure else None

    def mark(
        self, kind: Any, name: str, cells: Sequence[Cell], x: Iterable[float], **parts: Any
    ) -> Mark:
        """A mark of one cell, or of one cell per point, with the look of the first."""
        sources = tuple(map(source_of, cells))
        parts = {"look": self.looks[cells[0].label], "sources": sources, **parts}
        return Mark(kind, name, x=numbers(x), **parts)

    def over_trials(
        self,
        name: str,
        cell: Cell,
        values: Array,
        first: int = 0,
        kind: str = "line",
        note: str = "",
    ) -> Mark:
        """A line of a cell from the values of its trials, [S, places], from place `first` on."""
        places = range(first, first + values.shape[1])
        means = heights(spreads(values))
        return self.mark(kind, name, [cell], places, note=note, **means)


def is_measured(values: Array) -> bool:
    """Whether any value is not NaN."""
    return not bool(np.isnan(values).all())


def mask_name(mask: float) -> str:
    """A mask as figures show it: `−∞`, `−10⁹`, `−2`."""
    if math.isinf(mask):
        return f"{MINUS}∞"
    exponent = round(math.log10(-mask)) if mask < 0 else 0
    if exponent >= 3 and -mask == 10.0**exponent:
        return f"{MINUS}10{str(exponent).translate(_RAISED)}"
    return f"{mask + 0.0:g}".replace("-", MINUS)  # + 0.0 removes the sign of -0.0


def buffer_name(cell: Cell) -> str:
    """`buffer 200`."""
    return f"buffer {cell.config.buffer}" if cell.config.buffer else "no buffer"


def summary(rows: Iterable[Row], what: str) -> str:
    """`split-mnist, buffer 200: Class-IL, mean ± std over 10 trials`."""
    cells = [cell for row in rows for cell in row.cells]
    if not cells:
        return ""
    benchmarks = ", ".join(dict.fromkeys(cell.config.benchmark for cell in cells))
    buffers = {buffer_name(cell) for cell in cells}
    shared = f", {buffers.pop()}" if len(buffers) == 1 else ""
    fewest, most = (f(cell.trials for cell in cells) for f in (min, max))
    if most == 1:
        what = what.replace(" ± std", "")
    trials = f"{most}" if fewest == most else f"{fewest} to {most}"
    return f"{benchmarks}{shared}: {what} over {trials} trial{'s' * (most > 1)}"
