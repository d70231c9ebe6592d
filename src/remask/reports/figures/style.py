"""How figures look and how they are written down: one style, the same bytes every time."""

import importlib
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from remask.errors import MissingPackageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


COLUMN, PAGE = 3.35, 7.0
"""Widths in inches: of a column of text, and of both."""
GREY = "#6b6b6b"
PALE = "#f0f0f0"
DPI = 200

_STYLE: dict[str, Any] = {
    # DejaVu comes with matplotlib; the others are for viewers of an SVG who do not have it.
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "Helvetica", "sans-serif"],
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 8,
    "figure.titlesize": 8,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlepad": 4,
    "axes.labelpad": 3,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "lines.linewidth": 1.1,
    "lines.markersize": 3.5,
    "lines.markeredgewidth": 0.9,
    "legend.frameon": False,
    "legend.borderpad": 0.0,
    "legend.borderaxespad": 0.0,
    "legend.handlelength": 2.6,
    "legend.columnspacing": 1.6,
    "figure.dpi": DPI,
    "savefig.dpi": DPI,
    "text.parse_math": False,  # a method may be called anything
    "svg.fonttype": "none",
    "svg.hashsalt": "remask",
}


@dataclass(frozen=True)
class Look:
    """How a system is told from others: by colour, line and marker, any of which is enough."""

    colour: str
    line: str | tuple[float, tuple[float, ...]]
    marker: str
    fill: str

    @property
    def of_line(self) -> dict[str, Any]:
        """For `Axes.plot` and `Axes.errorbar`."""
        return {
            "color": self.colour,
            "linestyle": self.line,
            "marker": self.marker,
            "markerfacecolor": self.fill,
        }


_DASHED, _DOTTED = (0.0, (4.0, 1.6)), (0.0, (1.0, 1.4))
_LOOKS = {  # colours of Okabe and Ito
    None: Look("#000000", "-", "o", "#000000"),
    -math.inf: Look("#0072B2", _DASHED, "s", "#ffffff"),
    -1.0: Look("#D55E00", (0.0, (5.0, 1.2, 1.0, 1.2)), "^", "#D55E00"),
}
_OTHER_LOOK = Look("#009E73", _DOTTED, "D", "#ffffff")


def look(mask: float | None) -> Look:
    """The look of a system with this mask."""
    return _LOOKS.get(mask, _OTHER_LOOK)


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure of so many inches; call it, and draw, in the style's context."""
    figure: Figure = _matplotlib("figure").Figure(figsize=(width, height), layout="constrained")
    engine: Any = figure.get_layout_engine()
    engine.set(w_pad=0.03, h_pad=0.03, wspace=0.03, hspace=0.03)
    return figure


@contextmanager
def style() -> Iterator[None]:
    """Draw in the house's style, whatever the user's own settings; leave those as they were."""
    with _matplotlib("style").context("default"), _matplotlib("").rc_context(_STYLE):
        yield


def rendered(figure: "Figure", kind: str) -> bytes:
    """The file of a figure, `svg` or `png`; equal figures give equal bytes."""
    metadata = {"svg": {"Date": None, "Creator": "remask"}, "png": {"Software": "remask"}}[kind]
    stream = io.BytesIO()
    with style():
        figure.savefig(stream, format=kind, metadata=metadata)
    return stream.getvalue()


def title(figure: "Figure", text: str) -> None:
    """Say above all panels, in grey, what they have in common."""
    figure.suptitle(text, x=0.008, ha="left", color=GREY)


def percent_axes(panels: "Iterable[Axes]") -> None:
    """Give all the same axis, from a multiple of 20 below everything drawn up to 100."""
    panels = list(panels)
    lowest = min(axes.dataLim.y0 for axes in panels)
    bottom = min(max(20 * math.floor(lowest / 20), 0), 80) if math.isfinite(lowest) else 0
    margin = 0.03 * (100 - bottom)
    step = 10 if bottom >= 60 else 20
    for axes in panels:
        axes.set_ylim(bottom - margin, 100 + margin)
        axes.set_yticks(range(bottom, 101, step))
        axes.spines.left.set_bounds(bottom, 100)


def legend_above(axes: "Axes", handles: Sequence[Any], names: Sequence[str], lift: float) -> None:
    """Write the legend as the title of a row of panels, so many points above its first one."""
    anchor = _matplotlib("transforms").offset_copy(
        axes.transAxes, axes.get_figure(), 0, lift, units="points"
    )
    legend = axes.legend(
        handles,
        names,
        loc="lower left",
        bbox_to_anchor=(0, 1),
        bbox_transform=anchor,
        ncols=len(names),
    )
    legend.set_in_layout(False)  # it may be wider than its panel


Box = tuple[float, float, float, float]
"""Left, bottom, right, top, in pixels."""


def place(boxes: Sequence[Box], width: float, height: float, spots: Sequence[Box]) -> Box | None:
    """The first of the spots at which a label of this size meets no box; None if all do.

    A spot is (x, y, dx, dy): the label's centre is shifted from (x, y) by half its size times
    (dx, dy).
    """
    for x, y, dx, dy in spots:
        left, bottom = x + (dx - 1) * width / 2, y + (dy - 1) * height / 2
        box = (left, bottom, left + width, bottom + height)
        if not any(_overlap(box, other) for other in boxes):
            return box
    return None


def _overlap(one: Box, other: Box) -> bool:
    apart_sideways = one[2] <= other[0] or other[2] <= one[0]
    return not (apart_sideways or one[3] <= other[1] or other[3] <= one[1])


def _matplotlib(module: str) -> Any:
    """A module of matplotlib, which is an extra."""
    try:
        return importlib.import_module(f"matplotlib.{module}" if module else "matplotlib")
    except ImportError:
        raise MissingPackageError("figures need matplotlib: pip install 'remask[report]'") from None
