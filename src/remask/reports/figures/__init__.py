"""Figures: each is described once, as plain data, and drawn by the page and by matplotlib.

Cells that differ in more than mask and seed never share a line; in print, each group of equal
settings (`families`) has a row or panel of its own. Means and population standard deviations are
over finished trials.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remask.errors import UnknownNameError, unknown
from remask.files import AnyPath, make_folder
from remask.outputs import write_output
from remask.reports.comparison import ComparedCell
from remask.reports.figures.description import Figure, Row, Systems, buffer_name, families
from remask.reports.figures.drawing import draw, rendered
from remask.reports.figures.sweeps import (
    mask_figure,
    plane_figure,
    settings_figure,
    swept_families,
)
from remask.reports.figures.tasks import (
    accuracy_figure,
    confidence_figure,
    confusion_figure,
    losses_figure,
    matrices_figure,
    within_tasks_figure,
)
from remask.reports.measures import SETTINGS
from remask.store.cells import Cell, grouped

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

FIGURES = {
    "confidence": confidence_figure,
    "accuracy-over-tasks": accuracy_figure,
    "accuracy-within-tasks": within_tasks_figure,
    "losses": losses_figure,
    "mask-sweep": mask_figure,
    "settings": settings_figure,
    "matrices": matrices_figure,
    "confusion": confusion_figure,
    "stability-plasticity": plane_figure,
}
"""In the order of the page."""
_OF_ALL_CELLS = ("settings", "stability-plasticity")
_LONGEST_NAME = 50  # of a benchmark in a file name
_VALIDATED = {f"validation_{name}": f"validation {title}" for name, title in SETTINGS.items()}
_PROPOSED_MASKS = (float("-inf"), -1.0)
"""The masks that the paper proposes; print has no room for more."""


def page_figures(cells: Sequence[Cell], systems: Systems) -> list[dict[str, Any]]:
    """All figures that some cell has data for, for `to_json`."""
    found = []
    for benchmark, own in _by_benchmark(cells).items():
        rows = systems.rows(own)
        for setting, title in {**SETTINGS, **_VALIDATED}.items():
            for name in FIGURES if setting in SETTINGS else ["matrices"]:
                figure = FIGURES[name](rows, setting, systems)
                if figure.panels:
                    where = {"benchmark": benchmark, "setting": setting, "setting_title": title}
                    found.append({**where, **vars(figure)})
    return found


def plot(cells: Sequence[Cell], name: str, setting: str = "class_il") -> "Drawing | None":
    """Draw the named figure of all cells, a row per benchmark and buffer; None: nothing to draw."""
    if name not in FIGURES:
        raise UnknownNameError(unknown("figure", name, FIGURES))
    if setting not in SETTINGS:
        raise UnknownNameError(unknown("setting", setting, SETTINGS))
    groups = grouped(cells, lambda cell: f"{cell.config.benchmark}, {buffer_name(cell)}")
    systems = Systems(cells)
    rows = [
        row
        for title, group in groups.items()
        for row in systems.rows(group, title if len(groups) > 1 else "")
    ]
    figure = FIGURES[name](rows, setting, systems)
    return draw(figure, [row.title for row in rows]) if figure.panels else None


def write_figures(
    cells: Sequence[Cell], folder: AnyPath, compared: Sequence[ComparedCell] = ()
) -> list[Path]:
    """Write every figure that the cells have data for, as SVG and PNG; return their paths.

    Files are named BENCHMARK-FIGURE: `-mask-sweep` for families with at least three masks,
    `-confidence-b200` and so on for each buffer with families that have cells with and without a
    mask.
    """
    folder = Path(folder)
    paths: list[Path] = []
    systems = Systems(cells, compared)
    for benchmark, own in _by_benchmark(cells).items():
        start = re.sub(r"[^\w.-]+", "-", benchmark)[:_LONGEST_NAME]
        for name in FIGURES:
            for end, rows in _printed(name, own):
                settings = SETTINGS if name == "mask-sweep" else ["class_il"]
                figures = [FIGURES[name](rows, setting, systems) for setting in settings]
                figures = [figure for figure in figures if figure.panels]
                if not figures:
                    continue
                titles = [row.title for row in rows] if len(settings) == 1 else []
                drawing = draw(_stacked(figures), titles)
                make_folder(folder)
                for kind in ("svg", "png"):
                    paths.append(folder / f"{start}-{name}{end}.{kind}")
                    write_output(paths[-1], rendered(drawing, kind))
    return paths


def _printed(name: str, cells: Sequence[Cell]) -> Iterator[tuple[str, Sequence[Row]]]:
    """The end of the file name, and the rows, of each file of a figure."""
    if name in _OF_ALL_CELLS:
        yield "", [Row(tuple(cells))]
    elif name == "mask-sweep":
        yield "", swept_families(cells)
    else:
        rows = [row for family in families(cells) if (row := contrast(family))]
        by_buffer = grouped(rows, lambda row: row.cells[0].config.buffer)
        for buffer, own in sorted(by_buffer.items()):
            yield f"-b{buffer}", own


def contrast(family: Row) -> Row | None:
    """The cell without a mask, and those with -inf and -1 or else with the lowest mask."""
    if family.plain is None or not family.masked:
        return None
    chosen = [cell for cell in family.masked if cell.config.mask in _PROPOSED_MASKS]
    return replace(family, cells=(family.plain, *(chosen or family.masked[:1])))


def _stacked(figures: Sequence[Figure]) -> Figure:
    """One figure of several; each of them is a row, if there are several."""
    panels = [
        replace(panel, row=panel.row + place)
        for place, figure in enumerate(figures)
        for panel in figure.panels
    ]
    return replace(figures[0], panels=tuple(panels))


def _by_benchmark(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    return grouped((cell for cell in cells if cell.trials), lambda cell: cell.config.benchmark)
