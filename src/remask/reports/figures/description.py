"""What a figure shows, as plain data. The page's script and matplotlib draw it; neither adds to it.

The page's reader can hide systems, so ranges follow from what is shown: `round_range` says how,
here and, line by line, in the page's `chart.js`.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

PALETTE = (  # Okabe and Ito's, darkened for white paper and lightened for black
    ("#0067a5", "#56b4e9"),
    ("#c24e00", "#ff8f4d"),
    ("#007f5c", "#2fc79c"),
    ("#a9447f", "#e79cc9"),
    ("#946200", "#f0b429"),
    ("#3d3d3d", "#d9d9d9"),
    ("#6a51a3", "#b9a6ee"),
)
HEAT = (("#eef3f7", "#20272f"), ("#004a7c", "#7cc8f8"))
"""From the lowest value of a heat map to 100 %; on white paper and on black."""
DASHES = ((5.0, 3.0), (), (9.0, 3.0, 2.0, 3.0), (2.0, 2.5), (12.0, 3.0))
MARKERS = ("circle", "square", "triangle", "diamond", "cross", "plus", "down", "ring")
Numbers = tuple[float | None, ...]


@dataclass(frozen=True)
class Look:
    """How a system is told from others: by colour, dash and marker."""

    colour: int | None
    """Its number in PALETTE; None: that of text."""
    dash: tuple[float, ...] = ()
    marker: str = "circle"

    @classmethod
    def number(cls, n: int) -> "Look":
        """The look of the n-th system: 7 x 5 x 8 pass before two look the same."""
        return cls(n % len(PALETTE), DASHES[n % len(DASHES)], MARKERS[n % len(MARKERS)])


@dataclass(frozen=True)
class Source:
    """The cell that a point was measured on, as the page knows it and as a tooltip names it."""

    cell: str
    label: str
    trials: int
    """How many there were; of what else, `unit` says."""
    unit: str = "trial"


@dataclass(frozen=True)
class Mark:
    """A series of points, and how it is drawn.

    `line`: joined, its standard deviation a band or bars. `points`: markers with bars. `level`: a
    horizontal line at one height. `thread`: markers joined by a thin line, with bars both ways.
    `heat`: squares at (x, y), coloured by `values`.
    """

    kind: Literal["line", "points", "level", "thread", "heat"]
    name: str
    """Of its entry in the legend; nothing: it has none."""
    look: Look
    sources: tuple[Source, ...]
    """One for each point, or one for all."""
    x: Numbers
    y: Numbers
    std: Numbers = ()
    x_std: Numbers = ()
    values: Numbers = ()
    sizes: tuple[int, ...] = ()
    """Numbers in the panel's `sizes`."""
    note: str = ""
    """What the caption says of it."""


@dataclass(frozen=True)
class Axis:
    """Either places with names, or a scale in percent."""

    title: str
    places: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    """What a tooltip calls each place."""
    name: str = ""
    """What a tooltip calls a value, where both axes are scales."""
    near_100: bool = False
    """Logarithmic in the distance from 101: most systems differ near 100."""
    broken: bool = False
    """The first place is further away than the axis can show."""
    spans: tuple[tuple[int, int, str], ...] = ()
    """Places that belong together: the first, the one after the last, and their name."""


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    x: Axis
    y: Axis
    marks: tuple[Mark, ...]
    row: int = 0
    """Panels of a row stand side by side in print, under one legend."""
    std_as: Literal["band", "bars"] = "band"
    """How lines show their standard deviation; lines with bars stand a little apart."""
    sizes: tuple[str, ...] = ()
    """What the sizes of markers mean."""
    guides: tuple[tuple[str, float, float, float, float], ...] = ()
    """Thin straight lines in the background: name, x and y of both ends."""
    message: str = ""
    """What stands in place of marks."""
    large: bool = False
    """Whether the page gives it the place of four."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Panels with a title and a caption."""

    key: str
    title: str
    summary: str
    """What is drawn: benchmark, buffer, number of trials."""
    caption: str
    notes: str = ""
    """What introduces the notes of the marks."""
    empty: str
    """What to say where there is nothing to draw."""
    panels: tuple[Panel, ...]
    rows: tuple[str, ...] = ("",)
    """What sets each row of panels apart."""
    follows: tuple[str, ...] = ("system", "buffer")
    """Which of the reader's choices on the page say what is shown."""
    same_range: bool = False
    """Whether all panels have the same vertical range."""
    size: tuple[int, int] = (400, 300)
    """The least width and the height of a panel on the page, in pixels."""
    inches: float = 1.9
    """The height of a row in print."""
    heat: str = "right answers"
    """What the colours of heat maps are percentages of."""


def round_range(values: Iterable[float], least: float = 2.0) -> tuple[float, float, float]:
    """The range with round ends that holds all values, and the step of its ticks, in percent.

    It spans `least` points or more: differences that are nothing shall look it.
    """
    values = list(values)
    if not values:
        return 0.0, 100.0, 25.0
    apart = max(0.0, least - (max(values) - min(values))) / 2
    low, high = max(0.0, min(values) - apart), min(100.0, max(values) + apart)
    power = 10.0 ** math.floor(math.log10((high - low) / 4))
    step = power * next(f for f in (1, 2, 2.5, 5, 10) if f * power >= (high - low) / 4)
    start = math.floor(low / step + 1e-9) * step
    return start, min(100.0, math.ceil(high / step - 1e-9) * step), step


def ends(values: Numbers, stds: Numbers) -> list[float]:
    """What a range must hold: each value, less and more its standard deviation."""
    known = stds or (None,) * len(values)
    pairs = [(v, std or 0.0) for v, std in zip(values, known, strict=True) if v is not None]
    return [value + sign * std for value, std in pairs for sign in (-1, 1)]
