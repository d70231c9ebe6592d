"""What was selected on held-out training data: the best cell of a sweep, and masks of trials."""

import math
from collections import Counter
from collections.abc import Sequence

from remask.reports.measures import SETTINGS
from remask.reports.statistics import FEWEST_TRIALS, LEVEL, by_seed, t_test
from remask.reports.tables import lost_trials, write_spread
from remask.store import Cell, group_by_data


def best_by_validation(cells: Sequence[Cell]) -> list[str]:
    """Describe the best cell by validation and its test accuracy, a line per kind of data.

    Cells that learnt from different data, tasks or shares are not comparable. Empty if no cell
    held data out.
    """
    groups = group_by_data([cell for cell in cells if cell.has_validation])
    return [
        " ".join(_sentences(group, f" on {data}" if len(groups) > 1 else ""))
        for data, group in groups.items()
    ]


def masks_chosen(cells: Sequence[Cell]) -> list[str]:
    """The masks that the trials of each cell with the mask "auto" chose after each task."""
    lines = []
    for cell in cells:
        by_task = zip(*(record.choices for record in cell.finished), strict=True)
        counts = [Counter(choice.chosen for choice in made).most_common() for made in by_task]
        if counts:
            masks = (", ".join(f"{name} ({times})" for name, times in made) for made in counts)
            where = f"{cell.label}, {cell.config.benchmark}, buffer {cell.config.buffer}"
            lines.append(f"masks that {where} chose after each task: {' | '.join(masks)}")
    return lines


def _sentences(cells: Sequence[Cell], where: str) -> list[str]:
    if len(cells) == 1:
        return [f"nothing to choose{where}: there is only one cell."]
    setting = next((s for s in SETTINGS if any(_is_known(c, s) for c in cells)), None)
    if setting is None:
        return [f"nothing to choose{where}: no trial has finished."]
    measure = f"validation_{setting}_A_T"
    known = [cell for cell in cells if _is_known(cell, setting)]
    highest = max(cell.spreads[measure].mean for cell in known)
    best = [cell for cell in known if math.isclose(cell.spreads[measure].mean, highest)]
    several_buffers = len({cell.config.buffer for cell in cells}) > 1
    chosen = [
        _choice(cell, setting, f", buffer {cell.config.buffer}" if several_buffers else "")
        for cell in best
    ]
    tied = "tied as " if len(best) > 1 else ""
    sentences = [f"{tied}best by validation{where}: {' | '.join(chosen)}."]
    if len(known) > len(best):
        sentences.append(_reliability(best, known, measure))
    if len(cells) > len(known):
        sentences.append(f"Cells without a finished trial: {len(cells) - len(known)}.")
    return sentences


def _choice(cell: Cell, setting: str, more: str) -> str:
    held_out, test = (
        write_spread(cell.spreads[f"{part}{setting}_A_T"], aligned=False)
        for part in ("validation_", "")
    )
    trials = ", ".join([f"n={cell.trials}", *lost_trials(cell)])
    return (
        f"{cell.label}{more} (validation {SETTINGS[setting]} A_T {held_out}, {trials}); "
        f"test: {test}"
    )


def _reliability(best: Sequence[Cell], known: Sequence[Cell], measure: str) -> str:
    others = [cell for cell in known if cell not in best]
    values = by_seed(measure, best[0])
    tests = [t_test(values, by_seed(measure, cell)) for cell in others]
    made = [test for test in tests if test is not None]
    if not made:
        return f"Fewer than {FEWEST_TRIALS} trials per cell: too few for a test."
    alike = sum(test.p_different >= LEVEL for test in made)
    few = len(others) - len(made)
    if not alike and not few:
        return f"It differs significantly from every other cell (t-test at {100 * LEVEL:g} %)."
    return (
        f"Other cells without a significant difference from it (t-test at {100 * LEVEL:g} %): "
        f"{alike} of {len(others)}" + (f"; with too few trials for a test: {few}." if few else ".")
    )


def _is_known(cell: Cell, setting: str) -> bool:
    return not math.isnan(cell.spreads[f"validation_{setting}_A_T"].mean)
