"""What figures are made of: cells that belong together, their names, looks and means."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from remask.reports.comparison import ComparedCell, alike_but_mask
from remask.reports.figures.description import Look, Mark, Numbers, Source
from remask.store.cells import Cell, Spread, grouped, spreads

Array = NDArray[np.float64]
MINUS = "\N{MINUS SIGN}"
FAVOURITES = ("ER", "MSER(-inf)", "DER++", "MSDER++(-inf)", "MSDER++(-1)")
"""The systems that the paper compares; they get the clearest colours."""

_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_PROPOSED_MASKS = (-math.inf, -1.0)
"""The masks that the paper proposes; print has no room for more."""


@dataclass(frozen=True)
class Row:
    """Cells that are drawn in the same panels."""

    cells: tuple[Cell, ...]
    title: str = ""  # settings that distinguish it from other rows, `lr=0.1`; its legend omits them

    def name(self, cell: Cell) -> str:
        """The name of a cell in the legend, with its number of trials if they differ."""
        label = cell.label.partition(", ")[0] if self.title else cell.label
        return label + self.trials([cell])

    def trials(self, cells: Sequence[Cell]) -> str:
        """` (9 trials)` for some of its cells; empty if all cells have the same number."""
        return f" ({_trials(cells)})" if self._trials_differ else ""

    @cached_property
    def _trials_differ(self) -> bool:
        return len({cell.trials for cell in self.cells}) > 1


@dataclass(frozen=True)
class Family:
    """Cells that differ only in the mask and have learnt the same tasks."""

    plain: Cell | None  # without a mask
    masked: tuple[Cell, ...]  # in order of their masks

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All of them."""
        return self.masked if self.plain is None else (self.plain, *self.masked)

    @property
    def contrast(self) -> Row | None:
        """The cell without a mask, and those with -inf and -1 or else with the lowest mask."""
        if self.plain is None or not self.masked:
            return None
        chosen = [cell for cell in self.masked if cell.config.mask in _PROPOSED_MASKS]
        return Row((self.plain, *(chosen or self.masked[:1])), self.settings)

    @property
    def settings(self) -> str:
        """Settings that distinguish it from similar families: `lr=0.1`, or nothing."""
        return max((cell.label.partition(", ")[2] for cell in self.cells), key=len)


def families(cells: Iterable[Cell]) -> list[Family]:
    """Group the cells with a Class-IL accuracy and without the mask "auto"."""
    measured = (
        cell
        for cell in cells
        if cell.config.mask != "auto" and not math.isnan(cell.spreads["class_il_A_T"].mean)
    )
    found = []
    for alike in alike_but_mask(measured):
        by_mask = {cell.config.mask: cell for cell in alike}
        masks = sorted(mask for mask in by_mask if isinstance(mask, float))
        found.append(Family(by_mask.get(None), tuple(by_mask[mask] for mask in masks)))
    return found


class Systems:
    """The ids and looks of cells, the same in all figures of a report, and published figures."""

    def __init__(self, cells: Sequence[Cell], compared: Iterable[ComparedCell] = ()) -> None:
        self._published = {id(cell.ours): cell.figures for cell in compared}
        self._sources: dict[int, Source] = {}
        seen = Counter[str]()
        for cell in cells:
            name = cell.config.cell.hash[:12]
            seen[name] += 1  # cells of one config are numbered
            place = name if seen[name] == 1 else f"{name}-{seen[name]}"
            self._sources[id(cell)] = Source(place, cell.label, cell.trials)
        labels = dict.fromkeys(cell.label for cell in cells if cell.trials)
        ordered = dict.fromkeys([*(name for name in FAVOURITES if name in labels), *labels])
        self.looks = {label: Look.number(number) for number, label in enumerate(ordered)}

    def rows(self, cells: Sequence[Cell], title: str = "") -> list[Row]:
        """A row per group of cells that have learnt the same, in the order of their looks."""
        order = {label: place for place, label in enumerate(self.looks)}
        known = [cell for cell in cells if cell.trials]
        ranked = sorted(known, key=lambda cell: order[cell.label])
        groups = grouped(ranked, lambda cell: cell.learnt).values()
        return [Row(tuple(group), title) for group in groups]

    def source(self, cell: Cell) -> Source:
        """The source of points of this cell."""
        return self._sources[id(cell)]

    def published(self, cell: Cell, measure: str) -> Spread | None:
        """The published figure of a cell, if any."""
        figure = self._published.get(id(cell), {}).get(measure)
        return figure.published if figure else None

    def mark(
        self, kind: Any, name: str, cells: Sequence[Cell], x: Iterable[float], **parts: Any
    ) -> Mark:
        """A mark of one cell, or of one cell per point, with the look of the first."""
        sources = tuple(self.source(cell) for cell in cells)
        parts = {"look": self.looks[cells[0].label], "sources": sources, **parts}
        return Mark(kind, name, x=known(x), **parts)


def heights(spreads: Sequence[Spread]) -> dict[str, Numbers]:
    """The `y` and `std` of a mark; a single trial has no standard deviation."""
    stds = [one.std if one.trials > 1 else math.nan for one in spreads]
    return {"y": known(one.mean for one in spreads), "std": known(stds)}


def over_trials(values: Array) -> dict[str, Numbers]:
    """The `y` and `std` of a mark from the values of trials, [S, places]."""
    return heights(spreads(values))


def known(values: Iterable[float]) -> Numbers:
    """The numbers rounded, None instead of NaN."""
    return tuple(None if math.isnan(value) else round(float(value), 4) for value in values)


def matrices(cell: Cell, setting: str) -> Array:
    """The accuracy matrices of the finished trials, [S, T, T] in percent; [0] if there are none."""
    found = [getattr(record, setting) for record in cell.finished]
    return np.array([matrix for matrix in found if matrix], dtype=np.float64)


def is_measured(values: Array) -> bool:
    """Whether any value is not NaN."""
    return not bool(np.isnan(values).all())


def numbered(count: int) -> tuple[str, ...]:
    """`1`, `2`, ..."""
    return tuple(str(number) for number in range(1, count + 1))


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
    if all(cell.trials == 1 for cell in cells):
        what = what.replace(" ± std", "")
    return f"{benchmarks}{shared}: {what} over {_trials(cells)}"


def _trials(cells: Sequence[Cell]) -> str:
    counts = sorted({cell.trials for cell in cells})
    trials = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{trials} trial{'' if counts[-1] == 1 else 's'}"
