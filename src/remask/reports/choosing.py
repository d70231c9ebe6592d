"""What was chosen by held-out training data: the best cell of a sweep, and masks within trials."""

import math
from collections import Counter
from collections.abc import Sequence

from remask.reports.findings import by_seed, t_test
from remask.reports.measures import SETTINGS
from remask.reports.student import FEWEST_TRIALS, LEVEL
from remask.results import Cell, Spread, group_by_data


def best_by_validation(cells: Sequence[Cell]) -> list[str]:
    """Say which cell is best by validation, and its test figure; a line per kind of data.

    What was learnt from other data, other tasks or another share of them cannot be compared.
    Nothing is said if no cell held data out.
    """
    groups = group_by_data([cell for cell in cells if cell.has_validation])
    return [
        " ".join(_sentences(group, f" on {data}" if len(groups) > 1 else ""))
        for data, group in groups.items()
    ]


def masks_chosen(cells: Sequence[Cell]) -> list[str]:
    """Say what the trials of each cell with the mask "auto" chose after each task; a line each."""
    lines = []
    for cell in cells:
        by_task = zip(*(record.choices for record in cell.finished), strict=True)
        counts = [Counter(choice.chosen for choice in made).most_common() for made in by_task]
        if counts:
            told = (", ".join(f"{name} ({times})" for name, times in made) for made in counts)
            where = f"{cell.label}, {cell.config.benchmark}, buffer {cell.config.buffer}"
            lines.append(f"masks that {where} chose after each task: {' | '.join(told)}")
    return lines


def _sentences(cells: Sequence[Cell], where: str) -> list[str]:
    if len(cells) == 1:
        return [f"nothing to choose{where}: there is one cell only."]
    setting = next((s for s in SETTINGS if any(_is_known(c, s) for c in cells)), None)
    if setting is None:
        return [f"nothing to choose by{where}: no trial has finished."]
    measure = f"validation_{setting}_A_T"
    known = [cell for cell in cells if _is_known(cell, setting)]
    highest = max(cell.spreads[measure].mean for cell in known)
    best = [cell for cell in known if math.isclose(cell.spreads[measure].mean, highest)]
    several_buffers = len({cell.config.buffer for cell in cells}) > 1
    chosen = [
        _choice(cell, setting, f", buffer {cell.config.buffer}" if several_buffers else "")
        for cell in best
    ]
    if len(best) > 1:
        first = f"tied as best by validation{where}: {' | '.join(chosen)}."
    else:
        first = f"best by validation{where}: {chosen[0]}."
    out_of_it = len(cells) - len(known)
    left_out = f"Cells with no finished trial to judge by: {out_of_it}." if out_of_it else ""
    return [part for part in (first, _doubt(best, known, measure), left_out) if part]


def _choice(cell: Cell, setting: str, more: str) -> str:
    held_out, test = (cell.spreads[f"{part}{setting}_A_T"] for part in ("validation_", ""))
    lost = "".join(
        f", {number} {what}"
        for number, what in ((cell.diverged, "diverged"), (cell.failed, "failed"))
        if number
    )
    return (
        f"{cell.label}{more} (validation {SETTINGS[setting]} A_T {_write(held_out)}, "
        f"n={cell.trials}{lost}); its test figure: {_write(test)}"
    )


def _doubt(best: Sequence[Cell], known: Sequence[Cell], measure: str) -> str:
    """How far the choice can be believed."""
    others = [cell for cell in known if cell not in best]
    if not others:
        return ""
    values = by_seed(measure, best[0])
    tests = [t_test(values, by_seed(measure, cell)) for cell in others]
    made = [test for test in tests if test is not None]
    if not made:
        return (
            f"With fewer than {FEWEST_TRIALS} trials of a cell that is no more than a first look."
        )
    alike = sum(test.p_different >= LEVEL for test in made)
    if not alike and len(made) == len(others):
        return f"A t-test at {100 * LEVEL:g} % tells it from every other cell."
    few = len(others) - len(made)
    return (
        f"Of {len(others)} other cells, a t-test at {100 * LEVEL:g} % does not tell {alike} from it"
        + (f", and {few} have too few trials for one." if few else ".")
    )


def _is_known(cell: Cell, setting: str) -> bool:
    return not math.isnan(cell.spreads[f"validation_{setting}_A_T"].mean)


def _write(spread: Spread) -> str:
    return f"{spread.mean:.2f}" + (f" ±{spread.std:.2f}" if spread.trials > 1 else "")
