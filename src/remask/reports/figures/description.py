"""Figures as plain data, which the page's scripts and matplotlib both draw.

Readers of the page can hide systems, so axis ranges depend on what is shown: `round_range`
computes them here, and `chart.js` in the same way on the page.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

PALETTE = (  # Okabe and Ito's, darkened for light mode and lightened for dark mode
    ("#0067a5", "#56b4e9"),
    ("#c24e00", "#ff8f4d"),
    ("#007f5c", "#2fc79c"),
    ("#a9447f", "#e79cc9"),
    ("#946200", "#f0b429"),
    ("#3d3d3d", "#d9d9d9"),
    ("#6a51a3", "#b9a6ee"),
)
HEAT = (("#eef3f7", "#20272f"), ("#004a7c", "#7cc8f8"))
"""The lowest value of a heat map and 100 %; in light and in dark mode."""
DASHES = ((5.0, 3.0), (), (9.0, 3.0, 2.0, 3.0), (2.0, 2.5), (12.0, 3.0))
MARKERS = ("circle", "square", "triangle", "diamond", "cross", "plus", "down", "ring")
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
    near_100: bool = False  # logarithmic in the distance from 101: most systems differ near 100
    plain: bool = False  # numbers from 0 on that are not percentages, such as losses
    broken: bool = False  # whether the first place is infinitely far away
    spans: tuple[tuple[int, int, str], ...] = ()
    """Groups of places: first, one after the last, and name."""


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    x: Axis
    y: Axis
    marks: tuple[Mark, ...]
    row: int = 0  # panels of a row are side by side in print, under one legend
    std_as: Literal["band", "bars"] = "band"
    """How lines show standard deviations; lines with bars are shifted apart."""
    sizes: tuple[str, ...] = ()  # meanings of marker sizes
    guides: tuple[tuple[str, float, float, float, float], ...] = ()
    """Thin straight lines in the background: name, x and y of both ends."""
    large: bool = False  # whether it takes the space of four panels on the page


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Panels with a title and a caption."""

    key: str
    title: str
    summary: str  # benchmark, buffer and number of trials
    caption: str
    notes: str = ""  # introduces the notes of the marks
    empty: str  # shown if there is nothing to draw
    panels: tuple[Panel, ...]
    rows: tuple[str, ...] = ("",)  # title of each row of panels
    follows: tuple[str, ...] = ("system", "buffer")
    """Which of the reader's choices filter the marks on the page."""
    same_range: bool = False  # whether all panels have the same vertical range
    size: tuple[int, int] = (400, 300)  # minimum width and height of a panel on the page, in pixels
    inches: float = 1.9  # height of a row in print
    heat: str = "accuracy"  # what the colours of heat maps show, in percent


def round_range(
    values: Iterable[float], least: float = 2.0, most: float = 100.0
) -> tuple[float, float, float]:
    """A range with round ends that contains all values up to `most`, and its tick step.

    It spans at least `least`, so that negligible differences look negligible.
    """
    values = list(values)
    if not values:
        return 0.0, 100.0, 25.0
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
