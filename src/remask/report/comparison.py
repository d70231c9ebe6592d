"""Ours beside what was published: cells of the store and the claims about them."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from rich import box
from rich.table import Table

from remask.names import system_name
from remask.papers import Claim, PaperCell, published_figures
from remask.report.tables import write_spread
from remask.store import Cell, Spread

Verdict = Literal["reproduced", "not told apart", "better", "worse", "not run"]

MEASURES = {
    "class_il_A_T": "Class-IL A_T",
    "class_il_F_T": "Class-IL F_T",
    "task_il_A_T": "Task-IL A_T",
    "task_il_F_T": "Task-IL F_T",
}
"""What is published of a cell, and how tables call it."""
_ROUNDING = 0.005  # published figures have two decimals


@dataclass(frozen=True)
class Comparison:
    """One published figure, and ours beside it if there is one."""

    claim: Claim
    ours: Spread | None
    trials: int

    @property
    def deviations(self) -> float:
        """How many standard deviations of the claim ours lies above it."""
        difference = self._difference
        if abs(difference) <= _ROUNDING:
            return 0.0
        if not self.claim.std:
            return math.copysign(math.inf, difference)
        return difference / self.claim.std

    @property
    def welch(self) -> float:
        """The difference of the means over its standard error, both samples' own (Welch)."""
        error = math.hypot(
            (self.ours.std if self.ours else math.nan) / math.sqrt(self.trials or math.nan),
            (self.claim.std or 0.0) / math.sqrt(self.claim.trials),
        )
        difference = self._difference
        return difference / error if error else 0.0 if difference == 0 else math.inf

    @property
    def verdict(self) -> Verdict:
        """Reproduced: within two standard deviations of the claim.

        Not told apart: further off, but ours are too spread to say that the means differ (Welch's
        z within 2). Otherwise better or worse: more accuracy, or less forgetting.
        """
        if self.ours is None:
            return "not run"
        if abs(self.deviations) <= 2:
            return "reproduced"
        if abs(self.welch) <= 2:
            return "not told apart"
        higher_is_better = self.claim.metric == "A_T"
        return "better" if (self.deviations > 0) == higher_is_better else "worse"

    @property
    def _difference(self) -> float:
        return math.nan if self.ours is None else self.ours.mean - self.claim.mean


@dataclass(frozen=True)
class ComparedCell:
    """A cell of the paper, ours if it was run, and every figure that is published of it."""

    paper: PaperCell
    ours: Cell | None
    figures: Mapping[str, Comparison]
    """By measure, see MEASURES."""

    @property
    def label(self) -> str:
        """The system's name as tables print it."""
        return system_name(self.paper.method, self.paper.mask)

    @property
    def verdict(self) -> Verdict | None:
        """That of the figure that is furthest from being reproduced; None: nothing is published."""
        if self.ours is None:
            return "not run"
        found = [figure.verdict for figure in self.figures.values()]
        return next((name for name in _WORST_FIRST if name in found), None)


_WORST_FIRST: tuple[Verdict, ...] = ("worse", "better", "not told apart", "reproduced")


def paper_cell(cell: Cell) -> PaperCell:
    """The cell of a paper that a cell of the store would be, if its settings are the paper's."""
    config = cell.config
    return PaperCell(config.benchmark, config.method, config.mask, config.buffer)


def compare(wanted: Sequence[PaperCell], cells: Sequence[Cell]) -> list[ComparedCell]:
    """Put what is published of the wanted cells beside ours, all with the published settings."""
    ours = {paper_cell(cell): cell for cell in cells if cell.trials}
    return [_compared(paper, ours.get(paper)) for paper in wanted]


def verdicts(compared: Sequence[ComparedCell]) -> dict[Verdict, int]:
    """How many figures there are of each verdict."""
    found = Counter(figure.verdict for cell in compared for figure in cell.figures.values())
    return {verdict: found[verdict] for verdict in get_args(Verdict)}


def comparison_table(compared: Sequence[ComparedCell]) -> Table:
    """A row a cell: ours, and below it the claim and how many of its std ours lies above it."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name in ("method", "buffer", "trials", *MEASURES.values(), "verdict"):
        table.add_column(name, justify="left" if name in _WORDS else "right", no_wrap=True)
    for cell in compared:
        method, buffer, trials, *figures, verdict = _row(cell)
        ours, published, deviations = figures[::3], figures[1::3], figures[2::3]
        both = [
            mean if claim == "-" else f"{mean}\n[dim]{claim} {_shorten(std):>6}[/]"
            for mean, claim, std in zip(ours, published, deviations, strict=True)
        ]
        table.add_row(method, buffer, trials, *both, verdict)
    return table


def comparison_markdown(compared: Sequence[ComparedCell]) -> str:
    """The same with a column for each, for a document."""
    rules = ["---" if name in _WORDS else "---:" for name in _COLUMNS]
    lines = [_COLUMNS, rules, *map(_row, compared)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


_WORDS = ("method", "verdict")
_COLUMNS = [
    "method",
    "buffer",
    "trials",
    *(text for title in MEASURES.values() for text in (title, "published", "std")),
    "verdict",
]


def _compared(paper: PaperCell, ours: Cell | None) -> ComparedCell:
    figures = {}
    for measure, claim in published_figures(paper).items():
        measured = ours.spreads[measure] if ours else None
        if not (measured and math.isnan(measured.mean)):
            figures[measure] = Comparison(claim, measured, ours.trials if ours else 0)
    return ComparedCell(paper, ours, figures)


def _row(cell: ComparedCell) -> list[str]:
    row = [cell.label, str(cell.paper.buffer or "-"), str(cell.ours.trials if cell.ours else 0)]
    for measure in MEASURES:
        figure = cell.figures.get(measure)
        row.append(write_spread(cell.ours.spreads[measure]) if cell.ours else "-")
        row += _published(figure) if figure else ["-", "-"]
    return [*row, cell.verdict or "nothing published"]


def _shorten(deviations: str) -> str:
    """`-2.8 worse` as `-2.8!`: the verdict stands at the end of the row."""
    number, _, verdict = deviations.partition(" ")
    return number + ("?" if verdict == "not told apart" else "!" if verdict else "")


def _published(figure: Comparison) -> list[str]:
    claim = write_spread(Spread(figure.claim.mean, figure.claim.std or 0.0))
    if figure.ours is None:
        return [claim, "-"]
    mark = "" if figure.verdict == "reproduced" else f" {figure.verdict}"
    return [claim, f"{figure.deviations:+.1f}{mark}"]
