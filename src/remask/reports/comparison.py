"""Comparisons of our cells: with published figures and statements, and with and without a mask.

A statement's comparisons are one-sided t-tests in both directions: paired over the seeds that our
two cells share, because a seed gives both the same initial weights and the same stream; Welch's
where they share too few, and for the paper's own figures. The p-values of a statement's comparisons
are corrected together (Holm).
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from rich.text import Text

from remask.papers.experiments import (
    EXPERIMENTS,
    Expectation,
    PaperCell,
    Statement,
    experiment_cells,
    experiments_of,
    published_benchmarks,
    published_figures,
)
from remask.papers.published import Claim
from remask.reports.measures import (
    FEWEST_TRIALS,
    LEVEL,
    MEASURES,
    TTest,
    Verdict,
    by_seed,
    holm,
    t_test,
    verdict,
    welch,
)
from remask.reports.tables import PlainTable, write_aligned
from remask.store.cells import Cell, Spread, spread

VERDICT_TEST = (
    f"Welch's t-test, two-sided, at {100 * LEVEL:g} %, with at least {FEWEST_TRIALS} trials of ours"
)
STATEMENT_TEST = (
    f"t-test, one-sided, at {100 * LEVEL:g} %, Holm-corrected over the comparisons of a statement; "
    f"paired over the seeds that our two cells share, Welch's where they share fewer than "
    f"{FEWEST_TRIALS} and for the paper's own figures"
)
Finding = Literal["holds", "contradicted", "undecided", "too few trials", "not run"]
_ROUNDING = 0.005  # published figures have two decimals
_UNTESTED: tuple[Verdict, ...] = ("too few trials", "not run")
_WORST_FIRST: list[Verdict] = ["worse", "better", "no significant difference", "too few trials"]


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
        """Our mean minus the published one, in published deviations; NaN if there are none."""
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
        published = self.published
        if math.isnan(published.std):  # not published: the mean counts as exact
            published = published._replace(std=0.0)
        return welch(ours, published)

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
    figures: Mapping[str, Comparison]  # by measure, see MEASURES

    @property
    def label(self) -> str:
        """The system's name in tables."""
        return self.paper.label

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
        *(config.benchmark, config.method, config.mask, config.buffer, config.evaluate_every),
        *(config.protocol, config.augment, config.share),
    )


def compare(wanted: Sequence[PaperCell], cells: Sequence[Cell]) -> list[ComparedCell]:
    """Compare the wanted cells with ours, all of which have the published settings."""
    run = {paper_cell(cell): cell for cell in cells if cell.trials}
    found = []
    for paper in wanted:
        ours, figures = run.get(paper), {}
        for measure, claim in published_figures(paper).items():
            measured = ours.spreads[measure] if ours else None
            if measured is None or not math.isnan(measured.mean):
                figures[measure] = Comparison(claim, measured)
        found.append(ComparedCell(paper, ours, figures))
    return found


def published_beside(ours: Sequence[Cell], *, paper: bool = False) -> list[ComparedCell]:
    """Compare our cells, all with the published settings, with the paper's.

    Cells that were not run are included if most of an experiment was; with `paper`, all are.
    """
    begun = {cell.config.benchmark for cell in ours}
    benchmarks = [name for name in published_benchmarks() if name in begun]
    asked = [name for name in EXPERIMENTS if name != "gap"]  # nothing is published about it
    known = dict.fromkeys(c for b in benchmarks for e in asked for c in experiment_cells(e, b))
    compared = compare(list(known), ours)
    parts = [{(c.paper.benchmark, e) for e in experiments_of(c.paper)} for c in compared]
    wanted = Counter(part for own in parts for part in own)
    run = Counter(
        part for cell, own in zip(compared, parts, strict=True) if cell.ours for part in own
    )
    listed = {part for part in wanted if paper or 2 * run[part] > wanted[part]}
    return [c for c, own in zip(compared, parts, strict=True) if c.ours or own & listed]


def verdicts(compared: Sequence[ComparedCell]) -> dict[Verdict, int]:
    """The number of figures with each verdict."""
    found = Counter(figure.verdict for cell in compared for figure in cell.figures.values())
    return {verdict: found[verdict] for verdict in get_args(Verdict)}


def expected_by_chance(compared: Sequence[ComparedCell]) -> int:
    """The expected number of significant figures if there were no differences."""
    found = verdicts(compared)
    return round(LEVEL * sum(n for name, n in found.items() if name not in _UNTESTED))


def comparison_summary(compared: Sequence[ComparedCell]) -> list[str]:
    """How to read the table, and its totals: a sentence or two per line."""
    figures = [figure for cell in compared for figure in cell.figures.values()]
    if not figures:
        return ["Nothing is published about these cells."]
    found, by_chance = verdicts(compared), expected_by_chance(compared)
    counts = []
    if tested := len(figures) - sum(found[name] for name in _UNTESTED):
        counts.append(
            f"Of {tested} figures, {found['better'] + found['worse']} differ significantly (!): "
            f"{found['better']} better, {found['worse']} worse"
            + (f", about {by_chance} expected by chance" if by_chance else "")
        )
    counts += [f"{found[name]} {name}" for name in _UNTESTED if found[name]]
    sizes = " or ".join(map(str, sorted({figure.claim.trials for figure in figures})))
    lines = []
    if measured := [f for f in figures if not math.isnan(f.deviations)]:
        lines.append(
            f"Of {len(measured)} figures, {sum(f.is_near for f in measured)} are within 2 std of "
            f"the published one. std: our difference in published standard deviations."
        )
    return [
        *lines,
        f"{'; '.join(counts)}. Test: {VERDICT_TEST}.",
        f"±: population standard deviation over trials. Published figures are over {sizes} trials.",
    ]


def comparison_table(compared: Sequence[ComparedCell]) -> PlainTable:
    """A row per cell: ours, and below it the published figure and the difference in its std."""
    rows = []
    for cell in compared:
        trials = str(cell.ours.trials if cell.ours else 0)
        row: list[str | Text] = [cell.label, str(cell.paper.buffer or "-"), trials]
        for ours, claim, deviations, found in _texts(cell):
            below = f"{claim} {deviations + '!' * bool(found):>6}"
            row.append(Text.assemble(ours, "\n", (below, "dim")) if claim else ours)
        rows.append([*row, cell.verdict or "nothing published"])
    names = ["method", "buffer", "trials", *MEASURES.values(), "verdict"]
    return PlainTable(names, rows, left=("method", "verdict"))


def comparison_markdown(compared: Sequence[ComparedCell]) -> str:
    """The same for a document: ours and the published figure, with the verdict if significant."""
    rows = []
    for cell in compared:
        row: list[str | Text] = [cell.label, str(cell.paper.buffer or "-")]
        for ours, claim, _, found in _texts(cell):
            row += [ours, f"{claim}, {found}" if found else claim or "-"]
        rows.append(row)
    names = [name for title in MEASURES.values() for name in (title, "published")]
    return PlainTable(["method", "buffer", *names], rows, left=("method",)).markdown()


def _texts(cell: ComparedCell) -> Iterator[tuple[str, str, str, str]]:
    """By measure: ours, the published figure, the deviations, and the verdict if significant."""
    for measure in MEASURES:
        ours = write_aligned(cell.ours.spreads[measure]) if cell.ours else "-"
        figure = cell.figures.get(measure)
        if figure is None:
            yield ours, "", "", ""
            continue
        found = figure.verdict if figure.verdict in ("better", "worse") else ""
        away = figure.deviations
        deviations = "-" if math.isnan(away) else f"{away:+.1f}"
        yield ours, write_aligned(figure.published), deviations, found


@dataclass(frozen=True)
class Evidence:
    """One comparison of a statement, with its measurements."""

    expectation: Expectation
    higher: Spread | None  # what is expected to be higher; None if it was not run
    lower: Spread | None
    test: TTest | None  # None if either was not run or has too few trials
    p: float = math.nan  # corrected, of the expected direction; NaN if nothing was tested
    p_against: float = math.nan  # of the other direction

    @property
    def finding(self) -> Finding:
        """Whether it is significant in the expected or the other direction."""
        if self.higher is None or self.lower is None:
            return "not run"
        if self.test is None:
            return "too few trials"
        if self.p < LEVEL:
            return "holds"
        return "contradicted" if self.p_against < LEVEL else "undecided"


@dataclass(frozen=True)
class Decision:
    """A statement and its evidence."""

    statement: Statement
    evidence: tuple[Evidence, ...]

    @property
    def finding(self) -> Finding:
        """Whether every, most or some of the comparisons hold, as the statement requires."""
        found = [evidence.finding for evidence in self.evidence]
        for missing in ("not run", "too few trials"):
            if missing in found:
                return missing
        holding, against = found.count("holds"), found.count("contradicted")
        enough, too_many = {
            "every": (holding == len(found), against > 0),
            "most": (2 * holding > len(found), 2 * against >= len(found)),
            "some": (holding > 0, against == len(found)),
        }[self.statement.quantifier]
        return "holds" if enough else "contradicted" if too_many else "undecided"


def decide(statements: Sequence[Statement], cells: Mapping[PaperCell, Cell]) -> list[Decision]:
    """Decide each statement by our trials."""

    def measured(expected: Expectation) -> Evidence:
        higher = by_seed(expected.measure, cells.get(expected.higher))
        lower = by_seed(expected.measure, cells.get(expected.lower))
        one, other = (spread(values.values()) if values else None for values in (higher, lower))
        return Evidence(expected, one, other, t_test(higher, lower))

    return [_decide(statement, measured) for statement in statements]


def decide_by_the_paper(statements: Sequence[Statement]) -> list[Decision]:
    """Decide each statement by the paper's own figures."""

    def published(cell: PaperCell, measure: str) -> Spread | None:
        claim = published_figures(cell).get(measure)
        return Spread(claim.mean, claim.std, claim.trials) if claim else None

    def printed(expected: Expectation) -> Evidence:
        higher = published(expected.higher, expected.measure)
        lower = published(expected.lower, expected.measure)
        return Evidence(expected, higher, lower, welch(higher, lower) if higher and lower else None)

    return [_decide(statement, printed) for statement in statements]


def _decide(statement: Statement, measure: Callable[[Expectation], Evidence]) -> Decision:
    found = [measure(expected) for expected in statement.expectations]
    p_for = holm([each.test.p_higher if each.test else math.nan for each in found])
    p_against = holm([each.test.p_lower if each.test else math.nan for each in found])
    corrected = zip(found, p_for, p_against, strict=True)
    evidence = (replace(each, p=p, p_against=against) for each, p, against in corrected)
    return Decision(statement, tuple(evidence))


def decision_table(decided: Sequence[Decision], by_the_paper: Sequence[Decision]) -> PlainTable:
    """A row per statement: the finding of our trials, and that of the paper's own figures."""
    columns = ["the paper says", "our trials", "holds in", "test", "the paper's own figures"]
    rows = [
        [
            ours.statement.text,
            ours.finding,
            f"{sum(e.finding == 'holds' for e in ours.evidence)} of {len(ours.evidence)}",
            ", ".join(sorted({e.test.kind for e in ours.evidence if e.test})) or "-",
            "-" if theirs.finding == "not run" else theirs.finding,
        ]
        for ours, theirs in zip(decided, by_the_paper, strict=True)
    ]
    return PlainTable(columns, rows, left=columns, wrap=True)
