"""Figures for print, drawn from the store's cells with matplotlib.

Cells belong together, as one row or panel, if their configs are equal but for mask and seed
(`families`). Cells that differ in any other setting are never mixed: each group of equal settings
has a row or panel of its own, and where a method and a buffer have several, each says what sets it
apart. Means and standard deviations (of the population) are over finished trials alone.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from remask.durable import AnyPath, make_folder, write_output
from remask.reports.figures.contrasts import accuracy_figure, confidence_figure, matrices_figure
from remask.reports.figures.data import Family, families, has_confidence
from remask.reports.figures.plane import stability_plasticity_figure
from remask.reports.figures.style import rendered
from remask.reports.figures.sweep import mask_sweep_figure
from remask.results import Cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "accuracy_figure",
    "confidence_figure",
    "families",
    "mask_sweep_figure",
    "matrices_figure",
    "stability_plasticity_figure",
    "write_figures",
]

_ROWS = 4
"""Families on one page; more go on to the next."""
_COLUMNS = 3
"""Panels of a sweep on one page."""
_FEWEST_MASKS = 3
_LONGEST_NAME = 50  # so that a file name with it stays within what file systems take


def write_figures(cells: Sequence[Cell], folder: AnyPath) -> list[Path]:
    """Write every figure that the cells have data for, as SVG and PNG; return their paths.

    For each benchmark, `NAME-` being its name: `NAME-confidence-bB`, `NAME-accuracy-over-tasks-bB`
    and `NAME-matrices-bB` for each buffer B with a family that has cells with and without a mask;
    `NAME-mask-sweep` of families with at least three masks; `NAME-stability-plasticity` of all
    cells. What does not fit on one page goes on in `...-2`. Raises MissingPackageError without
    matplotlib.
    """
    folder = Path(folder)
    paths: list[Path] = []
    for name, figure in _figures(cells):
        if not paths:
            make_folder(folder)
        for kind in ("svg", "png"):
            path = folder / f"{name}.{kind}"
            write_output(path, rendered(figure, kind))
            paths.append(path)
    return paths


def _figures(cells: Sequence[Cell]) -> "Iterator[tuple[str, Figure]]":
    for benchmark in dict.fromkeys(cell.config.benchmark for cell in cells):
        chosen = [cell for cell in cells if cell.config.benchmark == benchmark]
        name = re.sub(r"[^\w.-]+", "-", benchmark)[:_LONGEST_NAME]  # that of own code has a colon
        found = families(chosen)
        pairs = [family for family in found if family.contrasted]
        for buffer in sorted({family.config.buffer for family in pairs}):
            of_buffer = [family for family in pairs if family.config.buffer == buffer]
            sure = [family for family in of_buffer if all(map(has_confidence, family.contrasted))]
            yield from _pages(f"{name}-confidence-b{buffer}", confidence_figure, sure, _ROWS)
            over_tasks = f"{name}-accuracy-over-tasks-b{buffer}"
            yield from _pages(over_tasks, accuracy_figure, of_buffer, _ROWS)
            yield from _pages(f"{name}-matrices-b{buffer}", matrices_figure, of_buffer, _ROWS)
        swept = [family for family in found if len(family.masked) >= _FEWEST_MASKS]
        yield from _pages(f"{name}-mask-sweep", mask_sweep_figure, swept, _COLUMNS)
        if (figure := stability_plasticity_figure(chosen)) is not None:
            yield f"{name}-stability-plasticity", figure


def _pages(
    name: str, draw: "Callable[[Sequence[Family]], Figure]", drawn: Sequence[Family], size: int
) -> "Iterator[tuple[str, Figure]]":
    for page, start in enumerate(range(0, len(drawn), size), start=1):
        yield name if page == 1 else f"{name}-{page}", draw(drawn[start : start + size])
