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
    source_of,
    summary,
)
from remask.reports.measures import SETTINGS, system_order
from remask.store.cells import Cell, grouped

_FEWEST_MASKS = 3
_MOST_LINES = 6
_NOT_SWEPT = ("benchmark", "method", "mask", "positive_mask", "buffer", "seed", "weights")


def settings_figure(rows: Sequence[Row], setting: str, systems: Systems) -> Figure:
    """Final accuracy against each numeric setting that a sweep varied.

    Accuracy is that of validation where data was held out. A line joins cells that differ in
    nothing else; of many lines, those that reach the highest accuracy are drawn.
    """
    cells = [cell for row in rows for cell in row.cells]
    validated = bool(cells) and all(cell.config.validation for cell in cells)
    measure = f"validation_{setting}_A_T" if validated else f"{setting}_A_T"
    known = [cell for cell in cells if not math.isnan(cell.spreads[measure].mean)]
    several_buffers = len({cell.config.buffer for cell in known}) > 1
    accuracy = Axis(f"final {'validation ' * validated}accuracy (%)")
    panels: list[Panel] = []
    left_out = False
    for name in dict.fromkeys(name for cell in known for name in _numbers(cell)):
        having = [cell for cell in known if name in _numbers(cell)]
        scale = sorted({_numbers(cell)[name] for cell in having})
        if len(scale) < 2:
            continue
        lines = [line for line in _alike_but(name, having) if len(line) > 1]
        lines.sort(key=lambda line: -max(cell.spreads[measure].mean for cell in line))
        left_out |= len(lines) > _MOST_LINES
        lines = sorted(lines[:_MOST_LINES], key=lambda line: system_order(line[0]))
        first = sum(len(panel.marks) for panel in panels)
        marks = []
        for number, line in enumerate(lines, start=first):
            line.sort(key=lambda cell: _numbers(cell)[name])
            parts = [p for p in line[0].label.split(", ") if p.partition("=")[0] != name]
            label = ", ".join([*parts, *[buffer_name(line[0])] * several_buffers])
            places = [scale.index(_numbers(cell)[name]) for cell in line]
            means = heights([cell.spreads[measure] for cell in line])
            look = Look.number(number)
            marks.append(systems.mark("line", label, line, places, **means, look=look))
        if marks:
            names = tuple(f"{value:g}" for value in scale)
            axis = Axis(f"{name}, not to scale", names, tuple(f"{name} = {n}" for n in names))
            panel = Panel(f"Accuracy against {name}", axis, accuracy, tuple(marks), std_as="bars")
            panels.append(panel)
    what = f"{'validation ' * validated}{SETTINGS[setting]}, mean ± std"
    return Figure(
        key="settings",
        summary=summary([Row(tuple(known))], what),
        panels=tuple(panels),
        remark=f"The {_MOST_LINES} lines with the highest points are drawn." * left_out,
        of_test=not validated,
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
    measure = f"{setting}_A_T"
    swept = [
        family
        for family in swept_families([cell for row in rows for cell in row.cells])
        if not math.isnan(family.masked[0].spreads[measure].mean)
    ]
    masks = sorted({_mask(cell) for family in swept for cell in family.masked})
    return Figure(
        key="mask-sweep",
        summary=summary(swept, "mean ± std"),
        panels=tuple(_masks_panel(family, setting, masks, systems) for family in swept),
    )


def swept_families(cells: Sequence[Cell]) -> list[Row]:
    """The families with enough masks for a sweep."""
    return [family for family in families(cells) if len(family.masked) >= _FEWEST_MASKS]


def _masks_panel(family: Row, setting: str, masks: Sequence[float], systems: Systems) -> Panel:
    measure = f"{setting}_A_T"
    plain, masked = family.plain, family.masked
    method = masked[0].label.partition("(")[0]
    title = ", ".join(filter(None, [f"{method}(m)", buffer_name(masked[0]), family.title]))

    best = max(masked, key=lambda cell: cell.spreads[measure].mean)
    note = f"{title.replace('(m)', '')}, m = {mask_name(_mask(best))}: {_percent(best, measure)}"
    if plain is not None:
        note += f", without a mask {_percent(plain, measure)}"

    def mark(kind: str, name: str, cells: Sequence[Cell], **parts: object) -> Mark:
        places = [masks.index(_mask(cell)) for cell in cells]
        means = heights([cell.spreads[measure] for cell in cells])
        return systems.mark(kind, name, cells, places, **{**means, **parts})

    far = sum(math.isinf(_mask(cell)) for cell in masked)  # no line leads to -inf
    marks = [
        mark("line", "masked at m, mean ± std", cells, look=Look(0), note=note)
        for cells in (masked[:far], masked[far:])
        if cells
    ]
    if plain is not None and not math.isnan(plain.spreads[measure].mean):
        level = heights([plain.spreads[measure]])
        look = Look(None, (1.5, 4.0), "")
        name = "the same without a mask"
        marks.append(systems.mark("level", name, [plain], (0,), **level, look=look))
    claims = {cell.label: systems.published(cell, measure) for cell in masked}
    if claimed := [(cell, claim) for cell in masked if (claim := claims[cell.label])]:
        sources = tuple(
            replace(source_of(cell), label=f"{cell.label}, published", trials=claim.trials)
            for cell, claim in claimed
        )
        parts = {"sources": sources, "look": Look(None, (), "diamond")}
        means = heights([claim for _, claim in claimed])
        marks.append(mark("points", "published", [cell for cell, _ in claimed], **means, **parts))
    names = tuple(map(mask_name, masks))
    axis = Axis("masking value m, not to scale", names, tuple(f"m = {name}" for name in names))
    return Panel(title, axis, Axis(f"final {SETTINGS[setting]} accuracy (%)"), tuple(marks))


def _percent(cell: Cell, measure: str) -> str:
    return f"{cell.spreads[measure].mean:.2f}\N{NO-BREAK SPACE}%"


def _mask(cell: Cell) -> float:
    return float(cell.config.mask or 0.0)


def plane_figure(rows: Sequence[Row], setting: str, systems: Systems) -> Figure:
    """Stability 100 - F_T against plasticity, a point per cell; lines join a system's buffers."""
    lost, learnt = f"{setting}_F_T", f"{setting}_plasticity"
    found = sorted((c for row in rows for c in row.cells), key=lambda cell: cell.config.buffer)
    drawn = [c for c in found if not math.isnan(c.spreads[lost].mean + c.spreads[learnt].mean)]
    sizes = list(dict.fromkeys(map(buffer_name, drawn)))
    by_label = grouped(drawn, lambda cell: cell.label)
    marks = [
        systems.mark(
            "thread",
            label,
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
        Axis(f"stability, 100 {MINUS} forgetting (%)", name="stability"),
        Axis("plasticity, accuracy right after learning (%)", name="plasticity"),
        tuple(marks),
        sizes=tuple(sizes),
        guides=_equal_accuracy({len(trial.tasks) for cell in drawn for trial in cell.finished}),
    )
    return Figure(
        key="stability-plasticity",
        summary=summary([Row(tuple(drawn))], f"{SETTINGS[setting]}, mean ± std"),
        panels=(panel,) if drawn else (),
        inches=4.0,
    )


def _equal_accuracy(tasks: set[int]) -> tuple[tuple[str, float, float, float, float], ...]:
    """Lines of plasticity = A_T + F_T (T - 1) / T, named by A_T; empty if T differs."""
    if len(tasks) != 1:
        return ()
    lost = 100 * (1 - 1 / tasks.pop())
    levels = (95, *range(90, 0, -10))
    return tuple((f"ends at {level} %", 0.0, level + lost, 100.0, level) for level in levels)
