"""Figures over settings: masks and hyperparameters, and stability against plasticity."""

import math
from collections.abc import Sequence
from dataclasses import replace

from remask.reports.figures.description import (
    MINUS,
    Axis,
    Figure,
    Look,
    Mark,
    Panel,
    Row,
    Systems,
    buffer_name,
    families,
    heights,
    mask_name,
    summary,
)
from remask.reports.measures import SETTINGS, system_order
from remask.store.cells import Cell, grouped

_FEWEST_MASKS = 3
_MOST_LINES = 6
_NOT_SWEPT = ("benchmark", "method", "mask", "positive_mask", "buffer", "seed", "weights")
_BEST = "{}, {}, m = {}: {:.2f}\N{NO-BREAK SPACE}%"


def settings_figure(rows: Sequence[Row], setting: str, systems: Systems) -> Figure:
    """Final accuracy against each numeric setting that a sweep varied.

    Accuracy is that of validation where data was held out. A line joins cells that differ in
    nothing else; of many lines, those that reach the highest accuracy are drawn.
    """
    cells = [cell for row in rows for cell in row.cells]
    validation = "validation " * (bool(cells) and all(cell.config.validation for cell in cells))
    measure = f"{validation.strip()}{'_' * bool(validation)}{setting}_A_T"
    known = [cell for cell in cells if not math.isnan(cell.spreads[measure].mean)]
    several_buffers = len({cell.config.buffer for cell in known}) > 1
    panels: list[Panel] = []
    left_out = False
    settings = {id(cell): _numbers(cell) for cell in known}
    for name in dict.fromkeys(name for found in settings.values() for name in found):
        values = {cell: found[name] for cell, found in settings.items() if name in found}
        scale = sorted({*values.values()})
        if len(scale) < 2:
            continue
        having = [cell for cell in known if id(cell) in values]
        lines = [line for line in _alike_but(name, having) if len(line) > 1]
        lines.sort(key=lambda line: -max(cell.spreads[measure].mean for cell in line))
        left_out |= len(lines) > _MOST_LINES
        first = sum(len(panel.marks) for panel in panels)
        marks: list[Mark] = []
        for line in sorted(lines[:_MOST_LINES], key=lambda line: system_order(line[0])):
            ordered = sorted(line, key=lambda cell: values[id(cell)])
            parts = [p for p in line[0].label.split(", ") if p.partition("=")[0] != name]
            parts += [buffer_name(line[0])] * several_buffers
            mark = systems.mark(
                "line",
                ", ".join(parts),
                ordered,
                [scale.index(values[id(cell)]) for cell in ordered],
                **heights([cell.spreads[measure] for cell in ordered]),
                look=Look.number(first + len(marks)),
            )
            marks.append(mark)
        if marks:
            places = tuple(f"{value:g}" for value in scale)
            where = tuple(f"{name} = {place}" for place in places)
            axis = Axis(f"{name}, not to scale", places, where)
            accuracy = Axis(f"final {validation}accuracy (%)")
            title = f"Accuracy against {name}"
            panels.append(Panel(title, axis, accuracy, tuple(marks), std_as="bars"))
    more = f"The {_MOST_LINES} lines with the highest points are drawn." if left_out else ""
    return Figure(
        key="settings",
        summary=summary([Row(tuple(known))], f"{validation}{SETTINGS[setting]}, mean ± std"),
        panels=tuple(panels),
        remark=more,
        of_test=not validation,
        inches=2.0,
    )


def _numbers(cell: Cell) -> dict[str, float]:
    """The settings of a cell that are numbers, with its weights."""
    given = {**vars(cell.config), **dict(cell.config.weights)}
    return {
        name: float(value)
        for name, value in given.items()
        if name not in _NOT_SWEPT and type(value) in (int, float) and math.isfinite(value)
    }


def _alike_but(name: str, cells: Sequence[Cell]) -> list[list[Cell]]:
    """Group the cells that differ in no other number."""

    def others(cell: Cell) -> tuple[object, ...]:
        config = cell.config
        rest = sorted((n, value) for n, value in _numbers(cell).items() if n != name)
        return config.method, str(config.mask), config.buffer, cell.learnt, tuple(rest)

    return list(grouped(cells, others).values())


def mask_figure(rows: Sequence[Row], setting: str, systems: Systems) -> Figure:
    """Final average accuracy against the mask: a panel per family with at least three masks.

    Masks are evenly spaced in their order.
    """
    swept = swept_families([cell for row in rows for cell in row.cells])
    drawn = Row(tuple(cell for family in swept for cell in family.cells))
    masks = sorted({_mask(cell) for family in swept for cell in family.masked})
    return Figure(
        key="mask-sweep",
        summary=summary([drawn], "mean ± std"),
        panels=tuple(
            _masks_panel(family, setting, masks, systems, drawn)
            for family in swept
            if not math.isnan(family.masked[0].spreads[f"{setting}_A_T"].mean)
        ),
        inches=2.0,
    )


def swept_families(cells: Sequence[Cell]) -> list[Row]:
    """The families with enough masks for a sweep."""
    return [family for family in families(cells) if len(family.masked) >= _FEWEST_MASKS]


def _masks_panel(
    family: Row, setting: str, masks: Sequence[float], systems: Systems, drawn: Row
) -> Panel:
    measure = f"{setting}_A_T"
    method = family.masked[0].label.partition("(")[0]
    where = ", ".join([buffer_name(family.masked[0]), *([family.title] if family.title else [])])
    best = max(family.masked, key=lambda cell: cell.spreads[measure].mean)
    note = _BEST.format(method, where, mask_name(_mask(best)), best.spreads[measure].mean)
    if family.plain is not None:
        note += f", without a mask {family.plain.spreads[measure].mean:.2f}\N{NO-BREAK SPACE}%"

    def mark(kind: str, name: str, cells: Sequence[Cell], **parts: object) -> Mark:
        places = [masks.index(_mask(cell)) for cell in cells]
        means = heights([cell.spreads[measure] for cell in cells])
        return systems.mark(kind, name, cells, places, **{**means, **parts})

    far = sum(math.isinf(_mask(cell)) for cell in family.masked)  # no line leads to -inf
    marks = [
        mark("line", "masked at m, mean ± std", cells, look=Look(0), note=note)
        for cells in (family.masked[:far], family.masked[far:])
        if cells
    ]
    plain = family.plain
    if plain is not None and not math.isnan(plain.spreads[measure].mean):
        level = heights([plain.spreads[measure]])
        look = Look(None, (1.5, 4.0), "")
        marks.append(
            systems.mark("level", "the same without a mask", [plain], (0,), **level, look=look)
        )
    claims = {id(c): claim for c in family.masked if (claim := systems.published(c, measure))}
    if claimed := [cell for cell in family.masked if id(cell) in claims]:
        sources = tuple(
            replace(systems.source(cell), label=f"{cell.label}, published", trials=claim.trials)
            for cell, claim in zip(claimed, claims.values(), strict=True)
        )
        means = heights([*claims.values()])
        look = Look(None, (), "diamond")
        marks.append(mark("points", "published", claimed, **means, sources=sources, look=look))
    names = tuple(mask_name(mask) for mask in masks)
    axis = Axis(
        "masking value m, not to scale",
        names,
        tuple(f"m = {name}" for name in names),
        broken=math.isinf(masks[0]),
    )
    accuracy = Axis(f"final {SETTINGS[setting]} accuracy (%)")
    title = f"{method}(m), {where}{drawn.trials(family.cells)}"
    return Panel(title, axis, accuracy, tuple(marks))


def _mask(cell: Cell) -> float:
    return float(cell.config.mask or 0.0)


def plane_figure(rows: Sequence[Row], setting: str, systems: Systems) -> Figure:
    """Stability 100 - F_T against plasticity, a point per cell; lines join a system's buffers."""
    lost, learnt = f"{setting}_F_T", f"{setting}_plasticity"
    found = sorted((c for row in rows for c in row.cells), key=lambda cell: cell.config.buffer)
    drawn = Row(
        tuple(c for c in found if not math.isnan(c.spreads[lost].mean + c.spreads[learnt].mean))
    )
    sizes = list(dict.fromkeys(map(buffer_name, drawn.cells)))
    by_label = grouped(drawn.cells, lambda cell: cell.label)
    marks = [
        systems.mark(
            "thread",
            label + drawn.trials(own),
            own,
            [100 - cell.spreads[lost].mean for cell in own],
            **heights([cell.spreads[learnt] for cell in own]),
            x_std=heights([cell.spreads[lost] for cell in own])["std"],
            sizes=tuple(sizes.index(buffer_name(cell)) for cell in own),
        )
        for label in systems.looks
        if (own := by_label.get(label))
    ]
    panel = Panel(
        "All buffers",
        Axis(f"stability, 100 {MINUS} forgetting (%)", name="stability", near_100=True),
        Axis("plasticity, accuracy right after learning (%)", name="plasticity", near_100=True),
        tuple(marks),
        sizes=tuple(sizes),
        guides=_equal_accuracy({len(trial.tasks) for c in drawn.cells for trial in c.finished}),
    )
    return Figure(
        key="stability-plasticity",
        summary=summary([drawn], f"{SETTINGS[setting]}, mean ± std"),
        panels=(panel,) if drawn.cells else (),
        inches=4.0,
    )


def _equal_accuracy(tasks: set[int]) -> tuple[tuple[str, float, float, float, float], ...]:
    """Lines of plasticity = A_T + F_T (T - 1) / T, named by A_T; empty if T differs."""
    if len(tasks) != 1:
        return ()
    lost = 100 * (1 - 1 / tasks.pop())
    levels = (95, *range(90, 0, -10))
    return tuple((f"ends at {level} %", 0.0, level + lost, 100.0, level) for level in levels)
