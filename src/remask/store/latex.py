"""Cells as a LaTeX table, mean ± standard deviation."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence

from remask.errors import printable
from remask.store.cells import Cell, Spread, grouped, write_spread

_ESCAPES = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}
_MASK = re.compile(r"\((-inf|-?[0-9][0-9.e+-]*)\)")
_TESTED = ("class_il_A_T", "class_il_F_T", "task_il_A_T", "task_il_F_T")
_VALIDATED = ("validation_class_il_A_T", "validation_task_il_A_T")


def latex_table(cells: Sequence[Cell]) -> str:
    """A booktabs table of the test set with a row per cell; the best of each buffer in bold.

    Where a cell held data out, there are also columns for the accuracies on it.
    """
    several = len({cell.config.benchmark for cell in cells}) > 1
    validation = any(cell.config.validation for cell in cells)
    test = ", test" if validation else ""
    measures = (*_TESTED, *(_VALIDATED if validation else ()))
    best = {name: best_cells(cells, name, lowest=name.endswith("F_T")) for name in measures}
    rows: list[str] = []
    for before, cell in zip([None, *cells], cells, strict=False):
        if before is not None and before.config.benchmark != cell.config.benchmark:
            rows.append(r"\midrule")
        rows.append(_row(cell, several, {name: id(cell) in best[name] for name in measures}))
    lines = [
        r"% needs \usepackage{booktabs}; mean $\pm$ population standard deviation over the trials",
        rf"\begin{{tabular}}{{{'l' if several else ''}lrr{'r' * len(measures)}}}",
        r"\toprule",
        rf"{'& ' if several else ''}& & & \multicolumn{{2}}{{c}}{{Class-IL{test}}}"
        rf" & \multicolumn{{2}}{{c}}{{Task-IL{test}}}"
        rf"{r' & Class-IL, validation & Task-IL, validation' if validation else ''} \\",
        rf"{'Benchmark & ' if several else ''}Method & Buffer & Trials"
        rf" & $A_T$ & $F_T$ & $A_T$ & $F_T${' & $A_T$ & $A_T$' if validation else ''} \\",
        *(r"\midrule", *rows, r"\bottomrule", r"\end{tabular}"),
    ]
    return "\n".join(lines) + "\n"


def _row(cell: Cell, with_benchmark: bool, best: Mapping[str, bool]) -> str:
    columns = [
        *([_escape(cell.config.benchmark)] if with_benchmark else []),
        _MASK.sub(_as_maths, _escape(cell.label)),
        str(cell.config.buffer or "--"),
        f"{cell.trials} ({', '.join(cell.lost)})" if cell.lost else str(cell.trials),
        *(_write(cell.spreads[name], bold=bold) for name, bold in best.items()),
    ]
    return " & ".join(columns) + r" \\"


def _escape(text: str) -> str:
    return "".join(_ESCAPES.get(character, character) for character in printable(text))


def _as_maths(mask: re.Match[str]) -> str:
    return "($" + mask[1].replace("inf", r"\infty") + "$)"


def _write(spread: Spread, *, bold: bool) -> str:
    if math.isnan(spread.mean):
        return "--"
    text = write_spread(spread, r" \pm ")
    return rf"$\mathbf{{{text}}}$" if bold else f"${text}$"


def best_cells(cells: Iterable[Cell], metric: str, *, lowest: bool) -> set[int]:
    """The ids of the cells with the best mean of each benchmark and buffer, where there are two."""
    known = [cell for cell in cells if not math.isnan(cell.spreads[metric].mean)]
    groups = grouped(known, lambda cell: (cell.config.benchmark, cell.config.buffer)).values()
    found: set[int] = set()
    for group in groups:
        means = [cell.spreads[metric].mean for cell in group]
        best = min(means) if lowest else max(means)
        if len(set(means)) > 1:
            found |= {id(cell) for cell, mean in zip(group, means, strict=True) if mean == best}
    return found
