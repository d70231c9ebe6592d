"""What happens to old tasks while a new one is learnt: the stability gap."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from remask.reports.figures.data import (
    Array,
    Row,
    Systems,
    heights,
    is_measured,
    over_trials,
    summary,
)
from remask.reports.figures.description import Axis, Figure, Mark, Panel
from remask.reports.measures import SETTINGS
from remask.results import Cell

_Times = tuple[tuple[int, ...], tuple[int, ...]]
"""The steps of a curve's points, and the tasks being learnt."""


def within_tasks_figure(rows: Sequence[Row], setting: str, systems: Systems) -> Figure:
    """The mean accuracy on all old tasks, from just before each switch on."""
    panels: list[Panel] = []
    drawn: list[Row] = []
    for number, row in enumerate(rows):
        together: dict[_Times, list[Cell]] = {}
        for cell in row.cells:
            times = _times(cell)
            if times and len({*times[1]}) > 1 and is_measured(_curves(cell, setting)):
                together.setdefault(times, []).append(cell)
        for times, cells in together.items():
            drawn.append(Row(tuple(cells), row.title))
            panels.append(_panel(row, cells, times, number, setting, systems))
    return Figure(
        key="accuracy-within-tasks",
        title="Old tasks while a new one is learnt",
        summary=summary(drawn, f"{SETTINGS[setting]}, mean ± std"),
        caption="Each stretch is the time of one task, and begins just before the switch to it. It "
        "shows how accurate the network is on all tasks before that one, on the first test samples "
        "of each class. A line that dives at the start of a stretch and climbs again is the "
        "stability gap, which measurements at the ends of tasks do not show.",
        empty="None of the chosen systems was measured within tasks (`--evaluate-every 50`).",
        panels=tuple(panels),
        rows=tuple(row.title for row in rows),
        size=(760, 300),
        inches=2.2,
    )


def _panel(
    row: Row,
    cells: Sequence[Cell],
    times: _Times,
    number: int,
    setting: str,
    systems: Systems,
) -> Panel:
    steps, learning = times
    tasks = sorted({*learning})
    stretches = []  # the points of each: the end of the task before, then its own
    for before, task in pairwise(tasks):
        last = max(point for point, learnt in enumerate(learning) if learnt == before)
        own = [point for point, learnt in enumerate(learning) if learnt == task]
        stretches.append((task, [last, *own]))
    marks: list[Mark] = []
    spans: list[tuple[int, int, str]] = []
    for task, points in stretches:
        first = spans[-1][1] if spans else 0
        places = range(first, first + len(points))
        spans.append((places.start, places.stop, f"task {task + 1}"))
        for cell in cells:
            of_old = _curves(cell, setting)[:, points, :task].mean(axis=-1)
            name = row.name(cell) if first == 0 else ""  # one entry in the legend
            means = heights(over_trials(of_old))
            marks.append(systems.mark("line", name, [cell], places, **means))
    where = [
        f"tasks before {task + 1}, {_when(steps[point] - steps[points[0]], task)}"
        for task, points in stretches
        for point in points
    ]
    axis = Axis(
        "steps",
        tuple(f"{steps[point]:,}" for _, points in stretches for point in points),
        tuple(where),
        spans=tuple(spans),
    )
    title = f"{SETTINGS[setting]} accuracy on the tasks before"
    return Panel(title, axis, Axis("right answers (%)"), tuple(marks), number)


def _when(step: int, task: int) -> str:
    return f"{step:,} steps into task {task + 1}" if step else f"at the end of task {task}"


def _times(cell: Cell) -> _Times | None:
    """When its trials were measured, if they were, and all at the same steps."""
    found = {
        None if record.curve is None else (record.curve.steps, record.curve.learning)
        for record in cell.finished
    }
    return found.pop() if len(found) == 1 else None


def _curves(cell: Cell, setting: str) -> Array:
    """The accuracy of all trials at all points, [S, points, T]."""
    found = [getattr(record.curve, setting) for record in cell.finished]
    return np.array(found, dtype=np.float64)
