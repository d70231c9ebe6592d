"""Figures over training steps and over masks, and stability against plasticity."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby, pairwise

import numpy as np

from remask.record import Losses
from remask.reports.figures.description import (
    MINUS,
    Array,
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
    is_measured,
    mask_name,
    over_trials,
    summary,
)
from remask.reports.measures import SETTINGS
from remask.store.cells import Cell

_FEWEST_MASKS = 3
_Times = tuple[tuple[int, ...], tuple[int, ...]]
"""The steps of a curve's points, and the tasks being learnt."""


def within_tasks_figure(rows: Sequence[Row], setting: str, systems: Systems) -> Figure:
    """The mean accuracy on all old tasks, from just before each switch on."""

    def times_of(cell: Cell) -> _Times | None:
        times = _curve_times(cell)
        followed = times and len({*times[1]}) > 1 and is_measured(_curves(cell, setting))
        return times if followed else None

    drawn = _by_times(rows, times_of)
    panels = [
        _within_tasks_panel(rows[number], row.cells, times, number, setting, systems)
        for number, times, row in drawn
    ]
    return Figure(
        key="accuracy-within-tasks",
        title="Old tasks while a new one is learnt",
        summary=summary([row for _, _, row in drawn], f"{SETTINGS[setting]}, mean ± std"),
        caption="Each segment is the time of one task, from just before the switch to it. It shows "
        "the accuracy on all earlier tasks, on the first test samples of each class. A line that "
        "falls at the start of a segment and then recovers shows the stability gap, which "
        "measurements at the ends of tasks miss.",
        empty="None of the chosen systems was measured within tasks (`--evaluate-every 50`).",
        panels=tuple(panels),
        rows=tuple(row.title for row in rows),
        size=(760, 300),
        inches=2.2,
    )


def losses_figure(rows: Sequence[Row], setting: str, systems: Systems) -> Figure:
    """A panel for the loss and one for each of its terms, the same in every setting."""

    def times_of(cell: Cell) -> _Times | None:
        losses = _losses(cell)
        return (losses[0].steps, losses[0].learning) if losses and losses[0].steps else None

    drawn = _by_times(rows, times_of)
    panels = [
        _losses_panel(rows[number], row.cells, times, term, number, systems)
        for number, times, row in drawn
        for term in dict.fromkeys(name for cell in row.cells for name in _losses(cell)[0].names)
    ]
    return Figure(
        key="losses",
        title="Losses during training",
        summary=summary([row for _, _, row in drawn], "mean ± std"),
        caption="Each point is the mean over the steps since the previous point. `loss` is the "
        "total; the others are its terms before weighting.",
        empty="None of the chosen systems has logged its losses (`--log-every 0`).",
        panels=tuple(panels),
        rows=tuple(row.title for row in rows),
        size=(760, 260),
        inches=2.0,
    )


def _by_times(
    rows: Sequence[Row], times_of: Callable[[Cell], _Times | None]
) -> list[tuple[int, _Times, Row]]:
    """Group the cells of each row, by its number, that were measured at the same steps."""
    found = []
    for number, row in enumerate(rows):
        together: dict[_Times, list[Cell]] = {}
        for cell in row.cells:
            if times := times_of(cell):
                together.setdefault(times, []).append(cell)
        found += [(number, times, Row(tuple(c), row.title)) for times, c in together.items()]
    return found


def _within_tasks_panel(
    row: Row, cells: Sequence[Cell], times: _Times, number: int, setting: str, systems: Systems
) -> Panel:
    steps, learning = times
    segments = []  # task and points: the end of the previous task, then its own
    for before, task in pairwise(sorted({*learning})):
        last = max(point for point, learnt in enumerate(learning) if learnt == before)
        own = [point for point, learnt in enumerate(learning) if learnt == task]
        segments.append((task, [last, *own]))
    marks: list[Mark] = []
    spans: list[tuple[int, int, str]] = []
    for task, points in segments:
        first = spans[-1][1] if spans else 0
        places = range(first, first + len(points))
        spans.append((places.start, places.stop, f"task {task + 1}"))
        for cell in cells:
            of_old = _curves(cell, setting)[:, points, :task].mean(axis=-1)
            name = row.name(cell) if first == 0 else ""  # one entry in the legend
            marks.append(systems.mark("line", name, [cell], places, **over_trials(of_old)))
    where = [
        f"tasks before {task + 1}, {_when(steps[point] - steps[points[0]], task)}"
        for task, points in segments
        for point in points
    ]
    places_shown = tuple(f"{steps[point]:,}" for _, points in segments for point in points)
    axis = Axis("steps", places_shown, tuple(where), spans=tuple(spans))
    title = f"{SETTINGS[setting]} accuracy on earlier tasks"
    return Panel(title, axis, Axis("accuracy (%)"), tuple(marks), number)


def _when(step: int, task: int) -> str:
    return f"{step:,} steps into task {task + 1}" if step else f"at the end of task {task}"


def _curve_times(cell: Cell) -> _Times | None:
    """When its trials were measured; None if they were not, or at different steps."""
    found = {
        None if record.curve is None else (record.curve.steps, record.curve.learning)
        for record in cell.finished
    }
    return found.pop() if len(found) == 1 else None


def _curves(cell: Cell, setting: str) -> Array:
    """The accuracy of all trials at all points, [S, points, T]."""
    found = [getattr(record.curve, setting) for record in cell.finished]
    return np.array(found, dtype=np.float64)


def _losses_panel(
    row: Row, cells: Sequence[Cell], times: _Times, term: str, number: int, systems: Systems
) -> Panel:
    steps, learning = times
    spans = []
    for task, places in groupby(range(len(steps)), key=lambda place: learning[place]):
        own = list(places)
        spans.append((own[0], own[-1] + 1, f"task {task + 1}"))
    marks = []
    for cell in cells:
        losses = _losses(cell)
        if term in losses[0].names:
            place = losses[0].names.index(term)
            values = np.array([[point[place] for point in one.values] for one in losses])
            means = over_trials(values.astype(np.float64))
            marks.append(systems.mark("line", row.name(cell), [cell], range(len(steps)), **means))
    axis = Axis(
        "steps",
        tuple(f"{step:,}" for step in steps),
        tuple(f"step {step:,}, task {task + 1}" for step, task in zip(*times, strict=True)),
        spans=tuple(spans),
    )
    return Panel(term, axis, Axis("loss", plain=True), tuple(marks), number)


def _losses(cell: Cell) -> list[Losses]:
    """The losses of its finished trials if all were logged alike; else nothing."""
    found = [record.losses for record in cell.finished]
    logged = [losses for losses in found if losses is not None]
    alike = {(losses.names, losses.steps, losses.learning) for losses in logged}
    return logged if len(alike) == 1 and len(logged) == len(found) else []


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
    text = f"{_method(family)}, {buffer_name(best)}, m = {mask_name(_mask(best))}: "
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
        guides=_equal_accuracy({len(cell.tasks or ()) for cell in drawn.cells}),
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
