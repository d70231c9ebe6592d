"""Ours beside what was published: cells of the store and the claims about them."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from rich.text import Text

from remask.names import system_name
from remask.papers import Claim, PaperCell, published_figures
from remask.reports.student import FEWEST_TRIALS, LEVEL, TTest, welch
from remask.reports.tables import PlainTable, write_spread
from remask.results import Cell, Spread

Verdict = Literal["not told apart", "better", "worse", "too few trials", "not run"]

MEASURES = {
    "class_il_A_T": "Class-IL A_T",
    "class_il_F_T": "Class-IL F_T",
    "task_il_A_T": "Task-IL A_T",
    "task_il_F_T": "Task-IL F_T",
}
"""What is published of a cell, and how tables call it."""
VERDICT_TEST = (
    f"told apart by Welch's t-test, two-sided, at {100 * LEVEL:g} %, which needs "
    f"{FEWEST_TRIALS} trials of ours"
)
_ROUNDING = 0.005  # published figures have two decimals


@dataclass(frozen=True)
class Comparison:
    """One published figure, and ours beside it if there is one."""

    claim: Claim
    ours: Spread | None

    @property
    def published(self) -> Spread:
        """What the claim says."""
        return Spread(self.claim.mean, self.claim.std, self.claim.trials)

    @property
    def deviations(self) -> float:
        """How many standard deviations of the claim ours lies above it: a description, no test."""
        difference = math.nan if self.ours is None else self.ours.mean - self.claim.mean
        if abs(difference) <= _ROUNDING:
            return 0.0
        if not self.claim.std:
            return math.copysign(math.inf, difference)
        return difference / self.claim.std

    @property
    def is_near(self) -> bool:
        """Whether ours lies within two standard deviations of the claim."""
        return abs(self.deviations) <= 2

    @property
    def test(self) -> TTest | None:
        """Welch's t-test of ours against the claim; None: not run, or too few trials."""
        if self.ours is None or self.ours.trials < FEWEST_TRIALS:
            return None
        # What the claim's rounding may have hidden is no difference.
        ours = self.ours if self.deviations else self.ours._replace(mean=self.claim.mean)
        return welch(ours, self.published)

    @property
    def verdict(self) -> Verdict:
        """Better (more accuracy, less forgetting) or worse if Welch's test tells them apart."""
        if self.ours is None:
            return "not run"
        if self.test is None:
            return "too few trials"
        if self.test.p_different >= LEVEL:
            return "not told apart"
        higher_is_better = self.claim.metric == "A_T"
        return "better" if (self.test.t > 0) == higher_is_better else "worse"


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
        """The first of worse, better, not told apart among its figures; None: none is published."""
        if self.ours is None:
            return "not run"
        found = [figure.verdict for figure in self.figures.values()]
        return next((name for name in _WORST_FIRST if name in found), None)


_WORST_FIRST: tuple[Verdict, ...] = ("worse", "better", "not told apart", "too few trials")


def paper_cell(cell: Cell) -> PaperCell:
    """The cell of a paper that a cell of the store would be, if its settings are the paper's."""
    config = cell.config
    return PaperCell(
        config.benchmark, config.method, config.mask, config.buffer, config.evaluate_every
    )


def compare(wanted: Sequence[PaperCell], cells: Sequence[Cell]) -> list[ComparedCell]:
    """Put what is published of the wanted cells beside ours, all with the published settings."""
    ours = {paper_cell(cell): cell for cell in cells if cell.trials}
    return [_compared(paper, ours.get(paper)) for paper in wanted]


def verdicts(compared: Sequence[ComparedCell]) -> dict[Verdict, int]:
    """How many figures there are of each verdict."""
    found = Counter(figure.verdict for cell in compared for figure in cell.figures.values())
    return {verdict: found[verdict] for verdict in get_args(Verdict)}


def told_apart_by_chance(compared: Sequence[ComparedCell]) -> int:
    """How many figures would be called better or worse, more or less, if none differed."""
    figures = [figure for cell in compared for figure in cell.figures.values()]
    return round(LEVEL * sum(figure.test is not None for figure in figures))


def comparison_summary(compared: Sequence[ComparedCell]) -> list[str]:
    """What the table means and shows in all, in a few sentences, one per line."""
    figures = [figure for cell in compared for figure in cell.figures.values()]
    if not figures:
        return ["Nothing is published of these cells."]
    run = [figure for figure in figures if figure.ours]
    counts = ", ".join(f"{count} {what}" for what, count in verdicts(compared).items() if count)
    by_chance = told_apart_by_chance(compared)
    sizes = " or ".join(map(str, sorted({figure.claim.trials for figure in figures})))
    return [
        f"Of {len(run)} figures, {sum(figure.is_near for figure in run)} lie within 2 std of the "
        f"published one. std: how many published standard deviations ours lies above it.",
        f"{counts}. Better or worse (!): {VERDICT_TEST}."
        + f" Chance alone would tell about {by_chance} apart." * bool(by_chance),
        f"±: population standard deviation over trials. Published figures are of {sizes} trials.",
    ]


def comparison_table(compared: Sequence[ComparedCell]) -> PlainTable:
    """A row per cell: ours, below it the claim and how many of its std ours lies above it."""
    table = PlainTable()
    for name in ("method", "buffer", "trials", *MEASURES.values(), "verdict"):
        table.add_column(name, justify="left" if name in _WORDS else "right", no_wrap=True)
    for cell in compared:
        method, buffer, trials, *figures, verdict = _row(cell)
        ours, published, deviations = figures[::3], figures[1::3], figures[2::3]
        both = [
            mean
            if claim == "-"
            else Text.assemble(mean, "\n", (f"{claim} {_shorten(std):>6}", "dim"))
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
            figures[measure] = Comparison(claim, measured)
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
    return number + ("!" if verdict else "")


def _published(figure: Comparison) -> list[str]:
    claim = write_spread(figure.published)
    if figure.ours is None:
        return [claim, "-"]
    mark = f" {figure.verdict}" if figure.verdict in ("better", "worse") else ""
    return [claim, f"{figure.deviations:+.1f}{mark}"]
