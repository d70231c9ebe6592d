"""Figures: each is described once, as plain data, and drawn by the page and by matplotlib.

Cells that differ in more than mask and seed never share a line; in print, each group of equal
settings (`families`) has a row or panel of its own. Means and population standard deviations are
over finished trials.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from remask.errors import UnknownNameError, unknown
from remask.files import AnyPath, make_folder
from remask.outputs import write_output
from remask.reports.comparison import ComparedCell
from remask.reports.figures.description import Figure, Row, Systems, buffer_name, families
from remask.reports.figures.drawing import draw, rendered
from remask.reports.figures.steps import losses_figure, within_tasks_figure
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
    matrices_figure,
)
from remask.reports.measures import SETTINGS
from remask.store.cells import Cell, grouped

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

_ROWS = 4
"""Families on one printed page."""
_COLUMNS = 3
"""Panels of a sweep on one printed page."""
_LONGEST_NAME = 50  # of a benchmark in a file name
_VALIDATED = {f"validation_{name}": f"validation {title}" for name, title in SETTINGS.items()}

Pages = Iterator[tuple[str, Sequence[Row]]]
"""The end of the file name, and the rows, of each printed page."""


class Kind(NamedTuple):
    """A kind of figure."""

    describe: Callable[[Sequence[Row], str, Systems], Figure]
    pages: Callable[[Sequence[Cell]], Pages]
    """Distributes cells over printed pages."""
    printed: tuple[str, ...] = ("class_il",)
    """The settings in print, one below the other."""


def _contrasts(cells: Sequence[Cell]) -> Pages:
    """The families of each buffer that have cells with and without a mask."""
    rows = [row for family in families(cells) if (row := family.contrast)]
    for buffer, own in sorted(grouped(rows, lambda row: row.cells[0].config.buffer).items()):
        yield from _paged(f"-b{buffer}", own, _ROWS)


def _sweeps(cells: Sequence[Cell]) -> Pages:
    return _paged("", swept_families(cells), _COLUMNS)


def _all_cells(cells: Sequence[Cell]) -> Pages:
    yield "", [Row(tuple(cells))]


def _paged(name: str, rows: Sequence[Row], size: int) -> Pages:
    for page, start in enumerate(range(0, len(rows), size), start=1):
        yield name if page == 1 else f"{name}-{page}", rows[start : start + size]


FIGURES = {
    "confidence": Kind(confidence_figure, _contrasts),
    "accuracy-over-tasks": Kind(accuracy_figure, _contrasts),
    "accuracy-within-tasks": Kind(within_tasks_figure, _contrasts),
    "losses": Kind(losses_figure, _contrasts),
    "mask-sweep": Kind(mask_figure, _sweeps, printed=tuple(SETTINGS)),
    "settings": Kind(settings_figure, _all_cells),
    "matrices": Kind(matrices_figure, _contrasts),
    "confusion": Kind(confusion_figure, _contrasts),
    "stability-plasticity": Kind(plane_figure, _all_cells),
}
"""In the order of the page."""


def page_figures(cells: Sequence[Cell], systems: Systems) -> list[dict[str, Any]]:
    """All figures that some cell has data for, for `to_json`."""
    found = []
    for benchmark, own in _by_benchmark(cells).items():
        rows = systems.rows(own)
        for setting, title in {**SETTINGS, **_VALIDATED}.items():
            for name in FIGURES if setting in SETTINGS else ["matrices"]:
                figure = FIGURES[name].describe(rows, setting, systems)
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
    figure = FIGURES[name].describe(rows, setting, systems)
    return draw(figure, [row.title for row in rows]) if figure.panels else None


def write_figures(
    cells: Sequence[Cell], folder: AnyPath, compared: Sequence[ComparedCell] = ()
) -> list[Path]:
    """Write every figure that the cells have data for, as SVG and PNG; return their paths.

    Files are named BENCHMARK-FIGURE: `-mask-sweep` for families with at least three masks,
    `-settings` and `-stability-plasticity` for all cells, and `-matrices-bB` and so on for each
    buffer B with cells with and without a mask. Further pages end in `-2` and so on.
    Raises MissingPackageError without matplotlib.
    """
    folder = Path(folder)
    paths: list[Path] = []
    for name, figure, titles in _printed(cells, Systems(cells, compared)):
        drawing = draw(figure, titles)
        if not paths:
            make_folder(folder)
        for kind in ("svg", "png"):
            path = folder / f"{name}.{kind}"
            write_output(path, rendered(drawing, kind))
            paths.append(path)
    return paths


def _printed(cells: Sequence[Cell], systems: Systems) -> Iterator[tuple[str, Figure, list[str]]]:
    for benchmark, own in _by_benchmark(cells).items():
        start = re.sub(r"[^\w.-]+", "-", benchmark)[:_LONGEST_NAME]
        for name, kind in FIGURES.items():
            for end, rows in kind.pages(own):
                figures = [kind.describe(rows, setting, systems) for setting in kind.printed]
                panels = [
                    replace(panel, row=panel.row + place)
                    for place, figure in enumerate(figures)  # of one row each, if there are several
                    for panel in figure.panels
                ]
                if panels:
                    titles = [row.title for row in rows] if len(figures) == 1 else []
                    drawn = next(figure for figure in figures if figure.panels)
                    yield f"{start}-{name}{end}", replace(drawn, panels=tuple(panels)), titles


def _by_benchmark(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    return grouped((cell for cell in cells if cell.trials), lambda cell: cell.config.benchmark)
