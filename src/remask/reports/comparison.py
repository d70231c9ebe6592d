"""Comparisons of our cells: with published figures, and with and without a mask."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from rich.text import Text

from remask.config import TrialConfig
from remask.names import system_name
from remask.papers.experiments import PaperCell, published_figures
from remask.papers.published import Claim
from remask.reports.measures import ALL_MEASURES, MEASURES
from remask.reports.statistics import (
    FEWEST_TRIALS,
    LEVEL,
    TTest,
    Verdict,
    by_seed,
    t_test,
    verdict,
    welch,
)
from remask.reports.tables import PlainTable, write_aligned
from remask.store.cells import Cell, Spread, grouped, spread

VERDICT_TEST = (
    f"Welch's t-test, two-sided, at {100 * LEVEL:g} %, with at least {FEWEST_TRIALS} trials of ours"
)
CONTRAST_TEST = (
    f"t-test, two-sided, at {100 * LEVEL:g} %, paired over the seeds that both share, Welch's "
    f"where they share fewer than {FEWEST_TRIALS}"
)
_ROUNDING = 0.005  # published figures have two decimals
_WORST_FIRST: tuple[Verdict, ...] = (
    "worse",
    "better",
    "no significant difference",
    "too few trials",
)


@dataclass(frozen=True)
class Comparison:
    """A published figure, and ours if there is one."""

    claim: Claim
    ours: Spread | None

    @property
    def published(self) -> Spread:
        """The published mean and standard deviation."""
        return Spread(self.claim.mean, self.claim.std, self.claim.trials)

    @property
    def deviations(self) -> float:
        """Our mean minus the published one, in published standard deviations."""
        difference = math.nan if self.ours is None else self.ours.mean - self.claim.mean
        if abs(difference) <= _ROUNDING:
            return 0.0
        if not self.claim.std:
            return math.copysign(math.inf, difference)
        return difference / self.claim.std

    @property
    def is_near(self) -> bool:
        """Whether ours is within two published standard deviations."""
        return abs(self.deviations) <= 2

    @property
    def test(self) -> TTest | None:
        """Welch's t-test of ours against the published figure; None if there are too few trials."""
        if self.ours is None or self.ours.trials < FEWEST_TRIALS:
            return None
        # A difference that rounding may explain does not count.
        ours = self.ours if self.deviations else self.ours._replace(mean=self.claim.mean)
        return welch(ours, self.published)

    @property
    def verdict(self) -> Verdict:
        """Whether ours is significantly better (more accuracy, less forgetting) or worse."""
        if self.ours is None:
            return "not run"
        return verdict(self.test, higher_is_better=self.claim.metric == "A_T")


@dataclass(frozen=True)
class ComparedCell:
    """A cell of the paper, ours if it was run, and all figures published for it."""

    paper: PaperCell
    ours: Cell | None
    figures: Mapping[str, Comparison]
    """By measure, see MEASURES."""

    @property
    def label(self) -> str:
        """The system's name in tables."""
        return system_name(self.paper.method, self.paper.mask)

    @property
    def verdict(self) -> Verdict | None:
        """The worst verdict of its figures; None if nothing is published."""
        if self.ours is None:
            return "not run"
        found = [figure.verdict for figure in self.figures.values()]
        return next((name for name in _WORST_FIRST if name in found), None)


def paper_cell(cell: Cell) -> PaperCell:
    """The cell of the paper that corresponds to ours, if our settings are the published ones."""
    config = cell.config
    return PaperCell(
        config.benchmark, config.method, config.mask, config.buffer, config.evaluate_every
    )


def compare(wanted: Sequence[PaperCell], cells: Sequence[Cell]) -> list[ComparedCell]:
    """Compare the wanted cells with ours, all of which have the published settings."""
    ours = {paper_cell(cell): cell for cell in cells if cell.trials}
    return [_compared(paper, ours.get(paper)) for paper in wanted]


def _compared(paper: PaperCell, ours: Cell | None) -> ComparedCell:
    figures = {}
    for measure, claim in published_figures(paper).items():
        measured = ours.spreads[measure] if ours else None
        if not (measured and math.isnan(measured.mean)):
            figures[measure] = Comparison(claim, measured)
    return ComparedCell(paper, ours, figures)


def verdicts(compared: Sequence[ComparedCell]) -> dict[Verdict, int]:
    """The number of figures with each verdict."""
    found = Counter(figure.verdict for cell in compared for figure in cell.figures.values())
    return {verdict: found[verdict] for verdict in get_args(Verdict)}


def expected_by_chance(compared: Sequence[ComparedCell]) -> int:
    """The expected number of significant figures if there were no differences."""
    figures = [figure for cell in compared for figure in cell.figures.values()]
    return round(LEVEL * sum(figure.test is not None for figure in figures))


def comparison_summary(compared: Sequence[ComparedCell]) -> list[str]:
    """How to read the table, and its totals: a sentence or two per line."""
    figures = [figure for cell in compared for figure in cell.figures.values()]
    if not figures:
        return ["Nothing is published about these cells."]
    run = [figure for figure in figures if figure.ours]
    found = verdicts(compared)
    counts = [f"{found[name]} {name}" for name in ("too few trials", "not run") if found[name]]
    tested = sum(figure.test is not None for figure in figures)
    if tested:
        by_chance = expected_by_chance(compared)
        about = f", about {by_chance} expected by chance" if by_chance else ""
        counts.insert(
            0,
            f"Of {tested} figures, {found['better'] + found['worse']} differ significantly (!): "
            f"{found['better']} better, {found['worse']} worse{about}",
        )
    sizes = " or ".join(map(str, sorted({figure.claim.trials for figure in figures})))
    return [
        f"Of {len(run)} figures, {sum(figure.is_near for figure in run)} are within 2 std of the "
        f"published one. std: our difference in published standard deviations.",
        f"{'; '.join(counts)}. Test: {VERDICT_TEST}.",
        f"±: population standard deviation over trials. Published figures are over {sizes} trials.",
    ]


def comparison_table(compared: Sequence[ComparedCell]) -> PlainTable:
    """A row per cell: ours, and below it the published figure and the difference in its std."""
    rows = []
    for cell in compared:
        row: list[str | Text] = _identity(cell)
        for measure in MEASURES:
            ours, claim, std = _figures(cell, measure)
            number, _, verdict = std.partition(" ")
            below = f"{claim} {number + '!' * bool(verdict):>6}"
            row.append(ours if claim == "-" else Text.assemble(ours, "\n", (below, "dim")))
        rows.append([*row, cell.verdict or "nothing published"])
    names = ["method", "buffer", "trials", *MEASURES.values(), "verdict"]
    return PlainTable(names, rows, left=("method", "verdict"))


def comparison_markdown(compared: Sequence[ComparedCell]) -> str:
    """The same for a document, with a column for each figure."""
    names = [name for title in MEASURES.values() for name in (title, "published", "std")]
    rows = [
        [
            *_identity(cell),
            *(text for measure in MEASURES for text in _figures(cell, measure)),
            cell.verdict or "nothing published",
        ]
        for cell in compared
    ]
    names = ["method", "buffer", "trials", *names, "verdict"]
    return PlainTable(names, rows, left=("method", "verdict")).markdown()


def _identity(cell: ComparedCell) -> list[str | Text]:
    return [cell.label, str(cell.paper.buffer or "-"), str(cell.ours.trials if cell.ours else 0)]


def _figures(cell: ComparedCell, measure: str) -> tuple[str, str, str]:
    """Ours, the published figure, and the difference with the verdict if it is significant."""
    ours = write_aligned(cell.ours.spreads[measure]) if cell.ours else "-"
    figure = cell.figures.get(measure)
    if figure is None:
        return ours, "-", "-"
    claim = write_aligned(figure.published)
    if figure.ours is None:
        return ours, claim, "-"
    mark = f" {figure.verdict}" if figure.verdict in ("better", "worse") else ""
    return ours, claim, f"{figure.deviations:+.1f}{mark}"


@dataclass(frozen=True)
class Difference:
    """The difference between two cells in one measure."""

    mean: float
    """First minus second; over the shared seeds where the test is paired."""
    test: TTest | None
    """None if there are too few trials."""
    verdict: Verdict
    """Of the first."""


@dataclass(frozen=True)
class Contrast:
    """A masked cell, the same one without a mask, and their differences."""

    plain: Cell
    masked: Cell
    differences: dict[str, Difference]
    """By measure, see MEASURES; only those that were measured."""


def alike_but_mask(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Group the cells whose settings differ only in the mask and that have learnt the same."""

    def key(cell: Cell) -> tuple[TrialConfig, str]:
        unmasked = {"mask": None, "positive_mask": False, "seed": 0}
        return cell.config.model_copy(update=unmasked), cell.learnt

    return list(grouped(cells, key).values())


def contrasts(cells: Sequence[Cell]) -> list[Contrast]:
    """Compare every masked cell with its unmasked one."""
    found = []
    for alike in alike_but_mask(cell for cell in cells if cell.trials):
        plain = next((cell for cell in alike if cell.config.mask is None), None)
        if plain is not None:
            found += [_contrast(plain, c) for c in alike if c.config.mask is not None]
    return found


def _contrast(plain: Cell, masked: Cell) -> Contrast:
    found = {}
    for measure in MEASURES:
        ours, theirs = by_seed(measure, masked), by_seed(measure, plain)
        if not ours or not theirs:
            continue
        test = t_test(ours, theirs)
        if test is not None and test.kind == "paired":
            mean = spread(ours[seed] - theirs[seed] for seed in ours if seed in theirs).mean
        else:
            mean = spread(ours.values()).mean - spread(theirs.values()).mean
        higher_is_better = ALL_MEASURES[measure].better == "higher"
        found[measure] = Difference(mean, test, verdict(test, higher_is_better=higher_is_better))
    return Contrast(plain, masked, found)
