"""How print looks, and how it is written down: one style, the same bytes every time."""

import importlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from remask.errors import MissingPackageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GREY = "#6b6b6b"
PALE = "#f0f0f0"
_DPI = 200

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
    "figure.dpi": _DPI,
    "savefig.dpi": _DPI,
    "text.parse_math": False,  # a method may be called anything
    "svg.fonttype": "none",
    "svg.hashsalt": "remask",
}


@contextmanager
def style() -> Iterator[None]:
    """Draw in one style; the user's own matplotlib settings neither matter nor change."""
    with matplotlib("style").context("default"), matplotlib("").rc_context(_STYLE):
        yield


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure of so many inches; call it, and draw, in the style's context."""
    figure: Figure = matplotlib("figure").Figure(figsize=(width, height), layout="constrained")
    engine: Any = figure.get_layout_engine()
    engine.set(w_pad=0.03, h_pad=0.03, wspace=0.03, hspace=0.03)
    return figure


def rendered(figure: "Figure", kind: str) -> bytes:
    """The file of a figure, `svg` or `png`; equal figures give equal bytes."""
    metadata = {"svg": {"Date": None, "Creator": "remask"}, "png": {"Software": "remask"}}[kind]
    stream = io.BytesIO()
    with style():
        figure.savefig(stream, format=kind, metadata=metadata)
    return stream.getvalue()


def matplotlib(module: str) -> Any:
    """A module of matplotlib, which is an extra."""
    try:
        return importlib.import_module(f"matplotlib.{module}" if module else "matplotlib")
    except ImportError:
        raise MissingPackageError("figures need matplotlib: pip install matplotlib") from None
