"""Figures over training steps: accuracy on old tasks within a task, and losses."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
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
    by_row,
    is_measured,
    summary,
)
from remask.reports.measures import SETTINGS
from remask.store.cells import Cell, grouped

_Times = tuple[tuple[int, ...], tuple[int, ...]]
"""The steps of a curve's points, and the tasks being learnt."""


def within_tasks_figure(rows: Sequence[Row], setting: str, systems: Systems) -> Figure:
    """The mean accuracy on all old tasks, from just before each switch on."""

    def times_of(cell: Cell) -> _Times | None:
        curves = {
            record.curve and (record.curve.steps, record.curve.learning) for record in cell.finished
        }
        if len(curves) != 1 or not (times := curves.pop()) or len({*times[1]}) < 2:
            return None
        return times if is_measured(_curves(cell, setting)) else None

    def panels(row: Row) -> Iterator[Panel]:
        for times, cells in grouped(row.cells, times_of).items():
            if times:
                yield _within_tasks_panel(row, cells, times, setting, systems)

    return Figure(
        key="accuracy-within-tasks",
        summary=summary(_measured(rows, times_of), f"{SETTINGS[setting]}, mean ± std"),
        panels=by_row(rows, panels),
        inches=2.2,
    )


def losses_figure(rows: Sequence[Row], setting: str, systems: Systems) -> Figure:
    """A panel for the loss and one for each of its terms, the same in every setting."""

    def times_of(cell: Cell) -> _Times | None:
        losses = _losses(cell)
        return (losses[0].steps, losses[0].learning) if losses and losses[0].steps else None

    def panels(row: Row) -> Iterator[Panel]:
        for times, cells in grouped(row.cells, times_of).items():
            if times:
                terms = dict.fromkeys(name for cell in cells for name in _losses(cell)[0].names)
                yield from (_losses_panel(row, cells, times, term, systems) for term in terms)

    return Figure(
        key="losses",
        of_test=False,
        summary=summary(_measured(rows, times_of), "mean ± std"),
        panels=by_row(rows, panels),
        inches=2.0,
    )


def _measured(rows: Sequence[Row], times_of: Callable[[Cell], _Times | None]) -> list[Row]:
    return [replace(row, cells=tuple(filter(times_of, row.cells))) for row in rows]


def _within_tasks_panel(
    row: Row, cells: Sequence[Cell], times: _Times, setting: str, systems: Systems
) -> Panel:
    steps, learning = times
    marks: list[Mark] = []
    places: list[str] = []
    where: list[str] = []
    spans: list[tuple[int, int, str]] = []
    for before, task in pairwise(sorted({*learning})):
        switch = max(point for point, learnt in enumerate(learning) if learnt == before)
        points = [switch, *(point for point, learnt in enumerate(learning) if learnt == task)]
        for cell in cells:
            of_old = _curves(cell, setting)[:, points, :task].mean(axis=-1)
            name = "" if spans else row.name(cell)  # one entry in the legend
            marks.append(systems.over_trials(name, cell, of_old, first=len(places)))
        spans.append((len(places), len(places) + len(points), f"task {task + 1}"))
        places += [f"{steps[point]:,}" for point in points]
        since = [steps[point] - steps[switch] for point in points]
        where += [f"tasks before {task + 1}, {_when(step, task)}" for step in since]
    axis = Axis("steps", tuple(places), tuple(where), spans=tuple(spans))
    title = f"{SETTINGS[setting]} accuracy on earlier tasks"
    return Panel(title, axis, Axis("accuracy (%)"), tuple(marks))


def _when(step: int, task: int) -> str:
    return f"{step:,} steps into task {task + 1}" if step else f"at the end of task {task}"


def _curves(cell: Cell, setting: str) -> Array:
    """The accuracy of all trials at all points, [S, points, T]."""
    return np.array([getattr(r.curve, setting) for r in cell.finished], dtype=np.float64)


def _losses_panel(
    row: Row, cells: Sequence[Cell], times: _Times, term: str, systems: Systems
) -> Panel:
    steps, learning = times
    spans = []
    for task, points in groupby(range(len(steps)), key=lambda point: learning[point]):
        own = list(points)
        spans.append((own[0], own[-1] + 1, f"task {task + 1}"))
    marks = []
    for cell in cells:
        losses = _losses(cell)
        if term in losses[0].names:
            place = losses[0].names.index(term)
            values = np.array([[point[place] for point in one.values] for one in losses], float)
            marks.append(systems.over_trials(row.name(cell), cell, values))
    where = (f"step {step:,}, task {task + 1}" for step, task in zip(*times, strict=True))
    axis = Axis("steps", tuple(f"{s:,}" for s in steps), tuple(where), spans=tuple(spans))
    return Panel(term, axis, Axis("loss", plain=True), tuple(marks))


def _losses(cell: Cell) -> list[Losses]:
    """The losses of its finished trials if all were logged alike; else nothing."""
    logged = [record.losses for record in cell.finished if record.losses is not None]
    alike = {(losses.names, losses.steps, losses.learning) for losses in logged}
    return logged if len(alike) == 1 and len(logged) == len(cell.finished) else []
