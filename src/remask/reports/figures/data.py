"""What figures are made of: cells that belong together, their names, looks and means."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from remask.reports.comparison import ComparedCell
from remask.reports.figures.description import Look, Mark, Numbers, Source
from remask.results import Cell, Spread, group_alike, group_but_mask, spreads

Array = NDArray[np.float64]
MINUS = "\N{MINUS SIGN}"
FAVOURITES = ("ER", "MSER(-inf)", "DER++", "MSDER++(-inf)", "MSDER++(-1)")
"""What the paper compares comes first, so that these systems have the clearest colours."""

_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_PROPOSED_MASKS = (-math.inf, -1.0)
"""The masks that the paper proposes; print, which has room for few, shows these."""


@dataclass(frozen=True)
class Row:
    """Cells that are drawn into the same panels."""

    cells: tuple[Cell, ...]
    title: str = ""
    """What sets it apart from other rows, `lr=0.1`: the names of its cells need not say that."""

    def name(self, cell: Cell) -> str:
        """What its legend calls a cell, with the number of trials where they differ."""
        label = cell.label.partition(", ")[0] if self.title else cell.label
        return label + (f" ({_trials([cell])})" if self._trials_differ else "")

    @cached_property
    def _trials_differ(self) -> bool:
        return len({cell.trials for cell in self.cells}) > 1


@dataclass(frozen=True)
class Family:
    """Cells whose configs are equal but for the mask, and that have learnt the same tasks."""

    plain: Cell | None
    """The one without a mask."""
    masked: tuple[Cell, ...]
    """The others, by mask, -inf first."""

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All of them."""
        return self.masked if self.plain is None else (self.plain, *self.masked)

    @property
    def contrast(self) -> Row | None:
        """The cell without a mask, then those with -inf and -1, or else with the lowest mask.

        None if there is no cell without a mask or none with one.
        """
        if self.plain is None or not self.masked:
            return None
        chosen = [cell for cell in self.masked if cell.config.mask in _PROPOSED_MASKS]
        return Row((self.plain, *(chosen or self.masked[:1])), self.settings)

    @property
    def settings(self) -> str:
        """What sets it apart from families of the same method and buffer: `lr=0.1`, or nothing."""
        return max((cell.label.partition(", ")[2] for cell in self.cells), key=len)


def families(cells: Iterable[Cell]) -> list[Family]:
    """Group the cells with a Class-IL accuracy at the end, in the order of the cells.

    Those that choose their mask have no place among masks.
    """
    measured = (
        cell
        for cell in cells
        if cell.config.mask != "auto" and not math.isnan(cell.spreads["class_il_A_T"].mean)
    )
    found = []
    for alike in group_but_mask(measured):
        by_mask = {cell.config.mask: cell for cell in alike}
        masks = sorted(mask for mask in by_mask if isinstance(mask, float))
        found.append(Family(by_mask.get(None), tuple(by_mask[mask] for mask in masks)))
    return found


class Systems:
    """What tells cells apart in every figure of a report, and what is published of them."""

    def __init__(self, cells: Sequence[Cell], compared: Iterable[ComparedCell] = ()) -> None:
        self._published = {id(cell.ours): cell.figures for cell in compared}
        self._ids: dict[int, str] = {}
        seen = Counter[str]()
        for cell in cells:
            name = cell.config.cell.hash[:12]
            seen[name] += 1  # cells of one config are numbered
            self._ids[id(cell)] = name if seen[name] == 1 else f"{name}-{seen[name]}"
        labels = dict.fromkeys(cell.label for cell in cells if cell.trials)
        ordered = dict.fromkeys([*(name for name in FAVOURITES if name in labels), *labels])
        self.looks = {label: Look.number(number) for number, label in enumerate(ordered)}

    def rows(self, cells: Sequence[Cell], title: str = "") -> list[Row]:
        """A row for each group of cells that have learnt the same, its cells in order of looks."""
        order = {label: place for place, label in enumerate(self.looks)}
        known = [cell for cell in cells if cell.trials]
        ranked = sorted(known, key=lambda cell: order[cell.label])
        return [Row(tuple(group), title) for group in group_alike(ranked, lambda cell: cell.learnt)]

    def source(self, cell: Cell) -> Source:
        """Where points of this cell come from; `cell` is its id in the page's addresses."""
        return Source(self._ids[id(cell)], cell.label, cell.trials)

    def published(self, cell: Cell, measure: str) -> Spread | None:
        """What is published of a cell, if anything."""
        figure = self._published.get(id(cell), {}).get(measure)
        return figure.published if figure else None

    def mark(
        self, kind: Any, name: str, cells: Sequence[Cell], x: Iterable[float], **parts: Any
    ) -> Mark:
        """A mark of one cell, or with one cell for each point, in the look of the first."""
        sources = tuple(self.source(cell) for cell in cells)
        parts = {"look": self.looks[cells[0].label], "sources": sources, **parts}
        return Mark(kind, name, x=known(x), **parts)


def heights(spreads: Sequence[Spread]) -> dict[str, Numbers]:
    """The y and std of a mark; one trial has no spread."""
    stds = [one.std if one.trials > 1 else math.nan for one in spreads]
    return {"y": known(one.mean for one in spreads), "std": known(stds)}


def over_trials(values: Array) -> list[Spread]:
    """Mean and standard deviation over trials: [S, places] -> one per place."""
    return spreads(values)


def known(values: Iterable[float]) -> Numbers:
    """The numbers, None for what was not measured, rounded beyond what anyone reads."""
    return tuple(None if math.isnan(value) else round(float(value), 4) for value in values)


def matrices(cell: Cell, setting: str) -> Array:
    """The accuracy matrices of the finished trials, [S, T, T] in percent; [0] if there are none."""
    found = [getattr(record, setting) for record in cell.finished]
    return np.array([matrix for matrix in found if matrix], dtype=np.float64)


def is_measured(values: Array) -> bool:
    """Whether there is any number in it."""
    return not bool(np.isnan(values).all())


def mask_name(mask: float) -> str:
    """A mask as figures show it: `−∞`, `−10⁹`, `−2`."""
    if math.isinf(mask):
        return f"{MINUS}∞"
    exponent = round(math.log10(-mask)) if mask < 0 else 0
    if exponent >= 3 and -mask == 10.0**exponent:
        return f"{MINUS}10{str(exponent).translate(_RAISED)}"
    return f"{mask + 0.0:g}".replace("-", MINUS)  # + 0.0 takes the sign off a zero


def buffer_name(cell: Cell) -> str:
    """`buffer 200`."""
    return f"buffer {cell.config.buffer}" if cell.config.buffer else "no buffer"


def summary(rows: Iterable[Row], what: str) -> str:
    """What is drawn: `split-mnist, buffer 200: Class-IL, mean ± std over 10 trials`."""
    cells = [cell for row in rows for cell in row.cells]
    benchmarks = ", ".join(dict.fromkeys(cell.config.benchmark for cell in cells))
    buffers = {buffer_name(cell) for cell in cells}
    shared = f", {buffers.pop()}" if len(buffers) == 1 else ""
    if all(cell.trials == 1 for cell in cells):  # one trial has no spread
        what = what.replace(" ± std", "")
    return f"{benchmarks}{shared}: {what} over {_trials(cells)}" if cells else ""


def own_trials(cells: Sequence[Cell], drawn: Sequence[Cell]) -> str:
    """` (9 trials)`, for after the name of these cells; nothing if all that is drawn agrees."""
    return f" ({_trials(cells)})" if len({cell.trials for cell in drawn}) > 1 else ""


def _trials(cells: Sequence[Cell]) -> str:
    counts = sorted({cell.trials for cell in cells})
    trials = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{trials} trial{'' if counts[-1] == 1 else 's'}"
