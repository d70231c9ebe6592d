"""Final accuracy against the mask."""

import math
from collections.abc import Sequence
from dataclasses import replace

from remask.reports.figures.data import (
    MINUS,
    Family,
    Row,
    Systems,
    buffer_name,
    families,
    heights,
    mask_name,
    own_trials,
    summary,
)
from remask.reports.figures.description import Axis, Figure, Look, Panel
from remask.reports.measures import SETTINGS
from remask.results import Cell

_FEWEST_MASKS = 3


def mask_figure(rows: Sequence[Row], setting: str, systems: Systems) -> Figure:
    """Final average accuracy against the mask: a panel per family with at least three masks.

    Masks are evenly spaced in their order.
    """
    swept = swept_families([cell for row in rows for cell in row.cells])
    drawn = [Row(family.cells) for family in swept]
    masks = sorted({float(cell.config.mask or 0.0) for family in swept for cell in family.masked})
    return Figure(
        key="mask-sweep",
        title="Final accuracy against the masking value m",
        summary=summary(drawn, "mean ± std"),
        caption=f"From left to right the mask lets go: at {MINUS}∞ old classes are left alone, "
        "near 0 new ones have room. Above the dotted line, masking ends better than no mask.",
        notes="The best masks:",
        empty="This needs three masking values of one method at one buffer. "
        "`remask reproduce ablation` runs the paper's.",
        panels=tuple(
            _panel(family, setting, masks, systems, [cell for row in drawn for cell in row.cells])
            for family in swept
            if not math.isnan(family.masked[0].spreads[f"{setting}_A_T"].mean)
        ),
        follows=(),
        size=(340, 280),
        inches=2.0,
    )


def swept_families(cells: Sequence[Cell]) -> list[Family]:
    """The families with enough masks for a sweep."""
    return [family for family in families(cells) if len(family.masked) >= _FEWEST_MASKS]


def _panel(
    family: Family, setting: str, masks: Sequence[float], systems: Systems, drawn: Sequence[Cell]
) -> Panel:
    measure = f"{setting}_A_T"

    def places(cells: Sequence[Cell]) -> list[int]:
        return [masks.index(float(cell.config.mask or 0.0)) for cell in cells]

    # No line leads to what is infinitely far away.
    far = sum(math.isinf(float(cell.config.mask or 0.0)) for cell in family.masked)
    marks = [
        systems.mark(
            "line",
            "masked at m, mean ± std",
            cells,
            places(cells),
            **heights([cell.spreads[measure] for cell in cells]),
            look=Look(0),
            note=_best(family, measure),
        )
        for cells in (family.masked[:far], family.masked[far:])
        if cells
    ]
    plain = family.plain
    if plain is not None and not math.isnan(plain.spreads[measure].mean):
        look = Look(None, (1.5, 4.0), "")
        level = heights([plain.spreads[measure]])
        marks.append(
            systems.mark("level", "the same without a mask", [plain], (0,), **level, look=look)
        )
    told = [(c, known) for c in family.masked if (known := systems.published(c, measure))]
    if told:
        sources = tuple(
            replace(systems.source(cell), label=f"{cell.label}, published", trials=known.trials)
            for cell, known in told
        )
        look = Look(None, (), "diamond")
        more = {**heights([known for _, known in told]), "sources": sources, "look": look}
        cells = [cell for cell, _ in told]
        marks.append(systems.mark("points", "published", cells, places(cells), **more))
    names = tuple(mask_name(mask) for mask in masks)
    where = tuple(f"m = {name}" for name in names)
    axis = Axis("masking value m, not to scale", names, where, broken=math.isinf(masks[0]))
    apart = f", {family.settings}" if family.settings else ""
    title = f"{_method(family)}(m), {buffer_name(family.masked[0])}{apart}"
    accuracy = Axis(f"final {SETTINGS[setting]} accuracy (%)")
    return Panel(title + own_trials(family.cells, drawn), axis, accuracy, tuple(marks))


def _method(family: Family) -> str:
    return family.masked[0].label.partition("(")[0]


def _best(family: Family, measure: str) -> str:
    best = max(family.masked, key=lambda cell: cell.spreads[measure].mean)
    mask = mask_name(float(best.config.mask or 0.0))
    told = f"{_method(family)}, {buffer_name(best)}, m = {mask}: "
    told += f"{best.spreads[measure].mean:.2f}\N{NO-BREAK SPACE}%"
    if family.plain is None:
        return told
    return f"{told}, without a mask {family.plain.spreads[measure].mean:.2f}\N{NO-BREAK SPACE}%"
