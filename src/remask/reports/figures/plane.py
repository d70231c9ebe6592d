"""Stability against plasticity: all cells of a benchmark in one plane."""

import math
from collections.abc import Sequence

from remask.reports.figures.data import (
    MINUS,
    Row,
    Systems,
    buffer_name,
    heights,
    own_trials,
    summary,
)
from remask.reports.figures.description import Axis, Figure, Panel
from remask.reports.measures import SETTINGS


def plane_figure(rows: Sequence[Row], setting: str, systems: Systems) -> Figure:
    """Stability 100 - F_T against plasticity, a point per cell; lines join a system's buffers."""
    lost, learnt = f"{setting}_F_T", f"{setting}_plasticity"
    found = sorted((c for row in rows for c in row.cells), key=lambda cell: cell.config.buffer)
    drawn = [c for c in found if not math.isnan(c.spreads[lost].mean + c.spreads[learnt].mean)]
    sizes = {cell.config.buffer: buffer_name(cell) for cell in drawn}
    marks = []
    for label in systems.looks:
        if own := [cell for cell in drawn if cell.label == label]:
            parts = {
                **heights([cell.spreads[learnt] for cell in own]),
                "x_std": heights([cell.spreads[lost] for cell in own])["std"],
                "sizes": tuple(list(sizes).index(cell.config.buffer) for cell in own),
            }
            name = label + own_trials(own, drawn)
            stable = [100 - cell.spreads[lost].mean for cell in own]
            marks.append(systems.mark("thread", name, own, stable, **parts))
    stability = f"stability, 100 {MINUS} forgetting (%)"
    panel = Panel(
        "All buffers",
        Axis(stability, name="stability", near_100=True),
        Axis("plasticity, accuracy right after learning (%)", name="plasticity", near_100=True),
        tuple(marks),
        sizes=tuple(sizes.values()),
        guides=_equal_accuracy({cell.learnt.num_tasks for cell in drawn}),
    )
    return Figure(
        key="stability-plasticity",
        title="Stability against plasticity",
        summary=summary([Row(tuple(drawn))], f"{SETTINGS[setting]}, mean ± std"),
        caption="Further right, less is forgotten; further up, a new task is learnt better at "
        "first. The upper right corner is best. A mask is meant to move a system "
        "to the right; how far it moves down is what that costs. Larger marks are larger buffers. "
        "Both axes are stretched towards 100. A thin curve joins points that end at the same "
        "accuracy, if forgetting is all that happens to a task once it is learnt.",
        empty="None of the chosen systems was tested both right after learning a task and at the "
        "end.",
        panels=(panel,) if drawn else (),
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
