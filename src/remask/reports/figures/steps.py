"""Figures over training steps: accuracy on old tasks within a task, and losses."""

from collections.abc import Callable, Iterable, Iterator, Sequence
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

    def panels(row: Row, cells: Sequence[Cell], times: _Times) -> Iterator[Panel]:
        yield _within_tasks_panel(row, cells, times, setting, systems)

    what = f"{SETTINGS[setting]}, mean ± std"
    return _over_steps("accuracy-within-tasks", rows, what, times_of, panels)


def losses_figure(rows: Sequence[Row], setting: str, systems: Systems) -> Figure:
    """A panel for the loss and one for each of its terms, the same in every setting."""

    def times_of(cell: Cell) -> _Times | None:
        losses = _losses(cell)
        return (losses[0].steps, losses[0].learning) if losses and losses[0].steps else None

    def panels(row: Row, cells: Sequence[Cell], times: _Times) -> Iterator[Panel]:
        for term in dict.fromkeys(name for cell in cells for name in _losses(cell)[0].names):
            yield _losses_panel(row, cells, times, term, systems)

    figure = _over_steps("losses", rows, "mean ± std", times_of, panels)
    return replace(figure, of_test=False)


def _over_steps(
    key: str,
    rows: Sequence[Row],
    what: str,
    times_of: Callable[[Cell], _Times | None],
    panels_of: Callable[[Row, Sequence[Cell], _Times], Iterable[Panel]],
) -> Figure:
    """A figure with panels for each group of cells that were measured at the same steps."""
    measured = [replace(row, cells=tuple(filter(times_of, row.cells))) for row in rows]

    def panels(row: Row) -> Iterator[Panel]:
        for times, cells in grouped(row.cells, times_of).items():
            assert times is not None
            yield from panels_of(row, cells, times)

    drawn = by_row(measured, panels)
    return Figure(key=key, summary=summary(measured, what), panels=drawn, inches=2.1)


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
        for point in points:
            places.append(f"{steps[point]:,}")
            since = steps[point] - steps[switch]
            when = (
                f"{since:,} steps into task {task + 1}" if since else f"at the end of task {task}"
            )
            where.append(f"tasks before {task + 1}, {when}")
    axis = Axis("steps", tuple(places), tuple(where), spans=tuple(spans))
    title = f"{SETTINGS[setting]} accuracy on earlier tasks"
    return Panel(title, axis, Axis("accuracy (%)"), tuple(marks))


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
            values = np.array([one.values for one in losses], float)
            own_values = values[:, :, losses[0].names.index(term)]
            marks.append(systems.over_trials(row.name(cell), cell, own_values))
    where = (f"step {step:,}, task {task + 1}" for step, task in zip(*times, strict=True))
    axis = Axis("steps", tuple(f"{s:,}" for s in steps), tuple(where), spans=tuple(spans))
    return Panel(term, axis, Axis("loss", plain=True), tuple(marks))


def _losses(cell: Cell) -> list[Losses]:
    """The losses of its finished trials if all were logged alike; else nothing."""
    logged = [record.losses for record in cell.finished if record.losses is not None]
    alike = {(losses.names, losses.steps, losses.learning) for losses in logged}
    return logged if len(alike) == 1 and len(logged) == len(cell.finished) else []
