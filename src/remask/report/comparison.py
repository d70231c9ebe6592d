"""Ours beside what was published: cells of the store and the claims about them."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from rich import box
from rich.table import Table

from remask.papers import Claim
from remask.report.tables import write_spread
from remask.store import Cell, Spread

Verdict = Literal["reproduced", "not told apart", "better", "worse"]

_MEASURES = (
    ("class-il", "A_T", "Class-IL A_T"),
    ("class-il", "F_T", "Class-IL F_T"),
    ("task-il", "A_T", "Task-IL A_T"),
    ("task-il", "F_T", "Task-IL F_T"),
)
_PREFERRED = "paper-dagger"  # the paper's own runs, before those that it quotes
_ROUNDING = 0.005  # published figures have two decimals


@dataclass(frozen=True)
class Comparison:
    """One figure of ours beside the published one."""

    ours: Spread
    trials: int
    claim: Claim

    @property
    def deviations(self) -> float:
        """How many standard deviations of the claim ours lies above it."""
        difference = self.ours.mean - self.claim.mean
        if abs(difference) <= _ROUNDING:
            return 0.0
        if not self.claim.std:
            return math.copysign(math.inf, difference)
        return difference / self.claim.std

    @property
    def welch(self) -> float:
        """The difference of the means over its standard error, both samples' own (Welch)."""
        difference = self.ours.mean - self.claim.mean
        error = math.hypot(
            self.ours.std / math.sqrt(self.trials),
            (self.claim.std or 0.0) / math.sqrt(self.claim.trials),
        )
        return difference / error if error else 0.0 if difference == 0 else math.inf

    @property
    def verdict(self) -> Verdict:
        """Reproduced: within two standard deviations of the claim.

        Not told apart: further off, but ours are too spread to say that the means differ (Welch's
        z within 2). Otherwise better or worse: more accuracy, or less forgetting.
        """
        if abs(self.deviations) <= 2:
            return "reproduced"
        if abs(self.welch) <= 2:
            return "not told apart"
        higher_is_better = self.claim.metric == "A_T"
        return "better" if (self.deviations > 0) == higher_is_better else "worse"


def compare(cell: Cell, claims: Iterable[Claim]) -> dict[str, Comparison]:
    """What was published of a cell, by measure: `Class-IL A_T` and so on."""
    config = cell.config
    wanted = (config.benchmark, config.method, config.mask, config.buffer)
    about = [c for c in claims if (c.benchmark, c.method, c.mask, c.buffer or 0) == wanted]
    found = {}
    for setting, metric, title in _MEASURES:
        score = cell.class_il if setting == "class-il" else cell.task_il
        ours = score.accuracy if metric == "A_T" else score.forgetting
        fitting = [c for c in about if (c.setting, c.metric) == (setting, metric)]
        fitting.sort(key=lambda claim: claim.source != _PREFERRED)
        if fitting and not math.isnan(ours.mean):
            found[title] = Comparison(ours, cell.trials, fitting[0])
    return found


def comparison_table(cells: Sequence[Cell], claims: Sequence[Claim]) -> Table:
    """Ours, the claim, and the difference in the claim's standard deviations: a row a cell."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name in _COLUMNS:
        table.add_column(name, justify="left" if name == "method" else "right", no_wrap=True)
    for row in _rows(cells, claims):
        table.add_row(*row)
    return table


def comparison_markdown(cells: Sequence[Cell], claims: Sequence[Claim]) -> str:
    """The same, for a document."""
    lines = [_COLUMNS, ["---"] + ["---:"] * (len(_COLUMNS) - 1), *_rows(cells, claims)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def verdicts(cells: Sequence[Cell], claims: Sequence[Claim]) -> dict[Verdict, int]:
    """How many figures there are of each verdict."""
    counts: dict[Verdict, int] = dict.fromkeys(get_args(Verdict), 0)
    for cell in cells:
        for comparison in compare(cell, claims).values():
            counts[comparison.verdict] += 1
    return counts


_COLUMNS = ["method", "buffer"] + [
    text for _, _, title in _MEASURES for text in (title, "published", "std")
]


def _rows(cells: Sequence[Cell], claims: Sequence[Claim]) -> list[list[str]]:
    rows = []
    for cell in cells:
        found = compare(cell, claims)
        if not found:
            continue
        row = [cell.label, str(cell.config.buffer or "-")]
        for _, _, title in _MEASURES:
            if title in found:
                row += _write(found[title])
            else:
                row += ["-"] * 3
        rows.append(row)
    return rows


def _write(comparison: Comparison) -> tuple[str, str, str]:
    claim = comparison.claim
    mark = "" if comparison.verdict == "reproduced" else f" {comparison.verdict}"
    return (
        write_spread(comparison.ours),
        write_spread(Spread(claim.mean, claim.std or 0.0)),
        f"{comparison.deviations:+.1f}{mark}",
    )
