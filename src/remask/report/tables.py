"""Tables for the terminal."""

import math
from collections.abc import Sequence

from rich import box
from rich.table import Table

from remask.store import Cell, Spread


def results_table(cells: Sequence[Cell]) -> Table:
    """Mean and standard deviation of A_T and F_T, a row a cell."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    benchmarks = sorted({cell.config.benchmark for cell in cells})
    if len(benchmarks) == 1:
        table.title = benchmarks[0]
    else:
        table.add_column("benchmark")
    table.add_column("method", no_wrap=True)
    for name in ("buffer", "Class-IL A_T", "F_T", "Task-IL A_T", "F_T", "trials"):
        table.add_column(name, justify="right", no_wrap=True)
    for cell in cells:
        row = [
            cell.label,
            str(cell.config.buffer or "-"),
            write_spread(cell.class_il.accuracy),
            write_spread(cell.class_il.forgetting),
            write_spread(cell.task_il.accuracy),
            write_spread(cell.task_il.forgetting),
            _write_trials(cell),
        ]
        table.add_row(*([] if len(benchmarks) == 1 else [cell.config.benchmark]), *row)
    return table


def write_spread(spread: Spread) -> str:
    """`85.29 ±2.05`, or a dash where nothing was measured."""
    return "-" if math.isnan(spread.mean) else f"{spread.mean:.2f} ±{spread.std:.2f}"


def _write_trials(cell: Cell) -> str:
    notes = [
        f"{count} {what}"
        for count, what in ((cell.diverged, "diverged"), (cell.failed, "failed"))
        if count
    ]
    return ", ".join([str(cell.trials), *notes])
