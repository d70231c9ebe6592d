"""Figures over settings: masks and hyperparameters, and stability against plasticity."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from remask.reports.figures.description import (
    MINUS,
    Axis,
    Family,
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
    place_of,
    summary,
)
from remask.reports.measures import SETTINGS
from remask.store.cells import Cell, grouped

_FEWEST_MASKS = 3
_FEWEST_VALUES = 2
_MOST_LINES = 6
_NOT_SWEPT = ("benchmark", "method", "mask", "positive_mask", "buffer", "seed", "weights")


def settings_figure(rows: Sequence[Row], setting: str, systems: Systems) -> Figure:
    """Final accuracy against each numeric setting that a sweep varied.

    Accuracy is that of validation where data was held out. A line joins cells that differ in
    nothing else; of many lines, those that reach the highest accuracy are drawn.
    """
    cells = [cell for row in rows for cell in row.cells]
    validated = bool(cells) and all(cell.config.validation for cell in cells)
    measure = f"{'validation_' if validated else ''}{setting}_A_T"
    known = [cell for cell in cells if not math.isnan(cell.spreads[measure].mean)]
    settings = {id(cell): _numbers(cell) for cell in known}
    names = dict.fromkeys(name for found in settings.values() for name in found)
    panels: list[Panel] = []
    left_out = False
    several_buffers = len({cell.config.buffer for cell in known}) > 1
    for name in names:
        values = sorted({found[name] for found in settings.values() if name in found})
        if len(values) < _FEWEST_VALUES:
            continue

        def others(cell: Cell, name: str = name) -> tuple[Any, ...]:
            rest = sorted((n, v) for n, v in settings[id(cell)].items() if n != name)
            config = cell.config
            return config.method, str(config.mask), config.buffer, cell.learnt, tuple(rest)

        having = (cell for cell in known if name in settings[id(cell)])
        lines = [line for line in grouped(having, others).values() if len(line) > 1]
        lines.sort(key=lambda line: -max(cell.spreads[measure].mean for cell in line))
        left_out |= len(lines) > _MOST_LINES
        marks = [
            _line(number, line, name, values, measure, systems, settings, several_buffers)
            for number, line in enumerate(
                sorted(lines[:_MOST_LINES], key=lambda line: place_of(line[0])),
                start=sum(len(panel.marks) for panel in panels),
            )
        ]
        if marks:
            where = tuple(f"{name} = {value:g}" for value in values)
            places = tuple(f"{value:g}" for value in values)
            accuracy = Axis(f"final {'validation ' * validated}accuracy (%)")
            axis = Axis(f"{name}, not to scale", places, where)
            panels.append(
                Panel(f"Accuracy against {name}", axis, accuracy, tuple(marks), std_as="bars")
            )
    more = f" The {_MOST_LINES} lines with the highest points are drawn." if left_out else ""
    kind = "validation " * validated + SETTINGS[setting]
    return Figure(
        key="settings",
        title=f"Final {'validation ' * validated}accuracy against the settings",
        summary=summary([Row(tuple(known))], f"{kind}, mean ± std"),
        caption="A line joins cells that differ in this setting only. If it still rises at an end, "
        f"a wider range may be better.{more}",
        empty="This needs cells that differ in a number, such as a learning rate: `remask sweep`.",
        panels=tuple(panels),
        of_test=not validated,
        follows=(),
        size=(340, 280),
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


def _line(
    number: int,
    line: Sequence[Cell],
    name: str,
    values: Sequence[float],
    measure: str,
    systems: Systems,
    settings: dict[int, dict[str, float]],
    with_buffer: bool,
) -> Mark:
    ordered = sorted(line, key=lambda cell: settings[id(cell)][name])
    system, *parts = ordered[0].label.split(", ")
    shown = [part for part in parts if part.partition("=")[0] != name]
    if with_buffer:
        shown.append(buffer_name(ordered[0]))
    return systems.mark(
        "line",
        ", ".join([system, *shown]),
        ordered,
        [values.index(settings[id(cell)][name]) for cell in ordered],
        **heights([cell.spreads[measure] for cell in ordered]),
        look=Look.number(number),
    )


def mask_figure(rows: Sequence[Row], setting: str, systems: Systems) -> Figure:
    """Final average accuracy against the mask: a panel per family with at least three masks.

    Masks are evenly spaced in their order.
    """
    swept = swept_families([cell for row in rows for cell in row.cells])
    drawn = Row(tuple(cell for family in swept for cell in family.cells))
    masks = sorted({_mask(cell) for family in swept for cell in family.masked})
    return Figure(
        key="mask-sweep",
        title="Final accuracy against the masking value m",
        summary=summary([drawn], "mean ± std"),
        caption=f"At {MINUS}∞ old classes are left alone; towards 0 new ones get more room. Above "
        "the dotted line, masking ends better than no mask.",
        notes="The best masks:",
        empty="This needs three masking values of one method at one buffer. "
        "`remask reproduce ablation` runs the paper's.",
        panels=tuple(
            _masks_panel(family, setting, masks, systems, drawn)
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


def _masks_panel(
    family: Family, setting: str, masks: Sequence[float], systems: Systems, drawn: Row
) -> Panel:
    measure = f"{setting}_A_T"

    def places(cells: Sequence[Cell]) -> list[int]:
        return [masks.index(_mask(cell)) for cell in cells]

    # No line leads to -inf.
    far = sum(math.isinf(_mask(cell)) for cell in family.masked)
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
    claims = [(c, claim) for c in family.masked if (claim := systems.published(c, measure))]
    if claims:
        cells = [cell for cell, _ in claims]
        sources = tuple(
            replace(systems.source(cell), label=f"{cell.label}, published", trials=claim.trials)
            for cell, claim in claims
        )
        more = {"sources": sources, "look": Look(None, (), "diamond")}
        means = heights([claim for _, claim in claims])
        marks.append(systems.mark("points", "published", cells, places(cells), **means, **more))
    names = tuple(mask_name(mask) for mask in masks)
    where = tuple(f"m = {name}" for name in names)
    axis = Axis("masking value m, not to scale", names, where, broken=math.isinf(masks[0]))
    settings = f", {family.settings}" if family.settings else ""
    title = f"{_method(family)}(m), {buffer_name(family.masked[0])}{settings}"
    accuracy = Axis(f"final {SETTINGS[setting]} accuracy (%)")
    return Panel(title + drawn.trials(family.cells), axis, accuracy, tuple(marks))


def _mask(cell: Cell) -> float:
    return float(cell.config.mask or 0.0)


def _method(family: Family) -> str:
    return family.masked[0].label.partition("(")[0]


def _best(family: Family, measure: str) -> str:
    best = max(family.masked, key=lambda cell: cell.spreads[measure].mean)
    settings = f", {family.settings}" if family.settings else ""
    text = f"{_method(family)}, {buffer_name(best)}{settings}, m = {mask_name(_mask(best))}: "
    text += f"{best.spreads[measure].mean:.2f}\N{NO-BREAK SPACE}%"
    if family.plain is None:
        return text
    return f"{text}, without a mask {family.plain.spreads[measure].mean:.2f}\N{NO-BREAK SPACE}%"


def plane_figure(rows: Sequence[Row], setting: str, systems: Systems) -> Figure:
    """Stability 100 - F_T against plasticity, a point per cell; lines join a system's buffers."""
    lost, learnt = f"{setting}_F_T", f"{setting}_plasticity"
    found = sorted((c for row in rows for c in row.cells), key=lambda cell: cell.config.buffer)
    drawn = Row(
        tuple(c for c in found if not math.isnan(c.spreads[lost].mean + c.spreads[learnt].mean))
    )
    sizes = {cell.config.buffer: buffer_name(cell) for cell in drawn.cells}
    by_label: dict[str, list[Cell]] = {}
    for cell in drawn.cells:
        by_label.setdefault(cell.label, []).append(cell)
    marks = []
    for label in systems.looks:
        if own := by_label.get(label):
            parts = {
                **heights([cell.spreads[learnt] for cell in own]),
                "x_std": heights([cell.spreads[lost] for cell in own])["std"],
                "sizes": tuple(list(sizes).index(cell.config.buffer) for cell in own),
            }
            name = label + drawn.trials(own)
            stable = [100 - cell.spreads[lost].mean for cell in own]
            marks.append(systems.mark("thread", name, own, stable, **parts))
    panel = Panel(
        "All buffers",
        Axis(f"stability, 100 {MINUS} forgetting (%)", name="stability", near_100=True),
        Axis("plasticity, accuracy right after learning (%)", name="plasticity", near_100=True),
        tuple(marks),
        sizes=tuple(sizes.values()),
        guides=_equal_accuracy({len(trial.tasks) for c in drawn.cells for trial in c.finished}),
    )
    return Figure(
        key="stability-plasticity",
        title="Stability against plasticity",
        summary=summary([drawn], f"{SETTINGS[setting]}, mean ± std"),
        caption="Further right, less is forgotten; further up, a new task is learnt better at "
        "first. The upper right corner is best. A mask should move a system to the right; moving "
        "down is its cost. Larger marks are larger buffers. Both axes are stretched towards 100. "
        "Points on a thin curve end at the same accuracy if learnt tasks only lose accuracy.",
        empty="None of the chosen systems was tested both right after learning a task and at the "
        "end.",
        panels=(panel,) if drawn.cells else (),
        follows=("system",),
        size=(760, 420),
        inches=4.0,
    )


def _equal_accuracy(
    numbers_of_tasks: set[int],
) -> tuple[tuple[str, float, float, float, float], ...]:
    """Lines of plasticity = A_T + F_T (T - 1) / T, named by A_T."""
    if len(numbers_of_tasks) != 1:
        return ()
    (tasks,) = numbers_of_tasks
    lost = 100 * (tasks - 1) / tasks
    levels = (95, *range(90, 0, -10))
    return tuple((f"ends at {level} %", 0.0, level + lost, 100.0, level) for level in levels)
