"""The losses while tasks are learnt, term by term."""

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from remask.reports.figures.data import Array, Row, Systems, heights, over_trials, summary
from remask.reports.figures.description import Axis, Figure, Panel
from remask.results import Cell, Losses

_Times = tuple[tuple[int, ...], tuple[int, ...]]
"""The steps of the points, and the tasks being learnt."""


def losses_figure(rows: Sequence[Row], setting: str, systems: Systems) -> Figure:
    """A panel for the loss and one for each of its terms, the same in every setting."""
    panels: list[Panel] = []
    drawn: list[Row] = []
    for number, row in enumerate(rows):
        together: dict[_Times, list[Cell]] = {}
        for cell in row.cells:
            if (losses := _losses(cell)) and losses[0].steps:
                together.setdefault((losses[0].steps, losses[0].learning), []).append(cell)
        for times, cells in together.items():
            drawn.append(Row(tuple(cells), row.title))
            for term in dict.fromkeys(name for cell in cells for name in _losses(cell)[0].names):
                with_term = [cell for cell in cells if term in _losses(cell)[0].names]
                panels.append(_panel(row, with_term, times, term, number, systems))
    return Figure(
        key="losses",
        title="Losses on the way",
        summary=summary(drawn, "mean ± std"),
        caption="Each point is the mean over the steps since the one before. `loss` is what is "
        "descended; the others are its terms, before they are weighed.",
        empty="None of the chosen systems has logged its losses (`--log-every 0`).",
        panels=tuple(panels),
        rows=tuple(row.title for row in rows),
        size=(760, 260),
        inches=2.0,
    )


def _panel(
    row: Row, cells: Sequence[Cell], times: _Times, term: str, number: int, systems: Systems
) -> Panel:
    steps, learning = times
    spans = []
    for task, places in groupby(range(len(steps)), key=lambda place: learning[place]):
        own = list(places)
        spans.append((own[0], own[-1] + 1, f"task {task + 1}"))
    marks = []
    for cell in cells:
        means = heights(over_trials(_of(cell, term)))
        marks.append(systems.mark("line", row.name(cell), [cell], range(len(steps)), **means))
    axis = Axis(
        "steps",
        tuple(f"{step:,}" for step in steps),
        tuple(f"step {step:,}, task {task + 1}" for step, task in zip(*times, strict=True)),
        spans=tuple(spans),
    )
    return Panel(term, axis, Axis("loss", plain=True), tuple(marks), number)


def _losses(cell: Cell) -> list[Losses]:
    """Those of its finished trials, if all were logged alike; else nothing."""
    found = [record.losses for record in cell.finished]
    logged = [losses for losses in found if losses is not None]
    alike = {(losses.names, losses.steps, losses.learning) for losses in logged}
    return logged if len(alike) == 1 and len(logged) == len(found) else []


def _of(cell: Cell, term: str) -> Array:
    """One term of all trials at all points, [S, points]."""
    losses = _losses(cell)
    place = losses[0].names.index(term)
    return np.array([[row[place] for row in one.values] for one in losses], dtype=np.float64)
