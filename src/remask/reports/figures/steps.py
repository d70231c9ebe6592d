"""Figures over training steps: accuracy on old tasks within a task, and losses."""

from collections.abc import Callable, Sequence
from itertools import groupby, pairwise

import numpy as np

from remask.record import Losses
from remask.reports.figures.description import (
    Array,
    Axis,
    Figure,
    Mark,
    Panel,
    Row,
    Systems,
    is_measured,
    over_trials,
    summary,
)
from remask.reports.measures import SETTINGS
from remask.store.cells import Cell

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
        of_test=False,
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
