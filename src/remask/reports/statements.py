"""The paper's statements, decided by our trials and by the paper's own figures.

Every comparison of a statement is a one-sided t-test in both directions: paired over the seeds that
our two cells share, because a seed gives both the same initial weights and the same stream; Welch's
where they share too few, and for the paper's own figures. The p-values of a statement's comparisons
are corrected together (Holm).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from remask.papers.experiments import PaperCell, published_figures
from remask.papers.statements import Expectation, Statement
from remask.reports.statistics import FEWEST_TRIALS, LEVEL, TTest, by_seed, holm, t_test, welch
from remask.reports.tables import PlainTable
from remask.store.cells import Cell, Spread, spread

Finding = Literal["holds", "contradicted", "undecided", "too few trials", "not run"]

STATEMENT_TEST = (
    f"t-test, one-sided, at {100 * LEVEL:g} %, Holm-corrected over the comparisons of a statement; "
    f"paired over the seeds that our two cells share, Welch's where they share fewer than "
    f"{FEWEST_TRIALS} and for the paper's own figures"
)


@dataclass(frozen=True)
class Measured:
    """Both sides of a comparison, and the test of them."""

    higher: Spread | None
    lower: Spread | None
    test: TTest | None
    """Of the first against the second; None if either was not run or has too few trials."""


@dataclass(frozen=True)
class Evidence:
    """One comparison of a statement, with its measurements."""

    expectation: Expectation
    measured: Measured
    p: float  # corrected, of the expected direction; NaN if nothing was tested
    finding: Finding


@dataclass(frozen=True)
class Decision:
    """A statement and its evidence."""

    statement: Statement
    evidence: tuple[Evidence, ...]

    @property
    def finding(self) -> Finding:
        """Whether every, most or some of the comparisons hold, as the statement requires."""
        found = [evidence.finding for evidence in self.evidence]
        if "not run" in found:
            return "not run"
        if "too few trials" in found:
            return "too few trials"
        holding, against = found.count("holds"), found.count("contradicted")
        enough, too_many = {
            "every": (holding == len(found), against > 0),
            "most": (2 * holding > len(found), 2 * against >= len(found)),
            "some": (holding > 0, against == len(found)),
        }[self.statement.quantifier]
        return "holds" if enough else "contradicted" if too_many else "undecided"


def decide(statements: Sequence[Statement], cells: Mapping[PaperCell, Cell]) -> list[Decision]:
    """Decide each statement by our trials."""

    def measured(expected: Expectation) -> Measured:
        higher = by_seed(expected.measure, cells.get(expected.higher))
        lower = by_seed(expected.measure, cells.get(expected.lower))
        return Measured(_spread(higher), _spread(lower), t_test(higher, lower))

    return [_decide(statement, measured) for statement in statements]


def _spread(values: Mapping[int, float]) -> Spread | None:
    return spread(list(values.values())) if values else None


def decide_by_the_paper(statements: Sequence[Statement]) -> list[Decision]:
    """Decide each statement by the paper's own figures."""

    def published(measure: str, cell: PaperCell) -> Spread | None:
        claim = published_figures(cell).get(measure)
        return None if claim is None else Spread(claim.mean, claim.std, claim.trials)

    def measured(expected: Expectation) -> Measured:
        higher = published(expected.measure, expected.higher)
        lower = published(expected.measure, expected.lower)
        return Measured(higher, lower, welch(higher, lower) if higher and lower else None)

    return [_decide(statement, measured) for statement in statements]


def _decide(statement: Statement, measure: Callable[[Expectation], Measured]) -> Decision:
    found = [measure(expected) for expected in statement.expectations]
    p_for = holm([m.test.p_higher if m.test else math.nan for m in found])
    p_against = holm([m.test.p_lower if m.test else math.nan for m in found])
    evidence = [
        Evidence(expectation, measured, p, _finding(measured, p, against))
        for expectation, measured, p, against in zip(
            statement.expectations, found, p_for, p_against, strict=True
        )
    ]
    return Decision(statement, tuple(evidence))


def _finding(measured: Measured, p: float, p_against: float) -> Finding:
    if measured.higher is None or measured.lower is None:
        return "not run"
    if measured.test is None:
        return "too few trials"
    return "holds" if p < LEVEL else "contradicted" if p_against < LEVEL else "undecided"


def decision_table(decided: Sequence[Decision], by_the_paper: Sequence[Decision]) -> PlainTable:
    """A row per statement: the finding of our trials, and that of the paper's own figures."""
    columns = ["the paper says", "our trials", "holds in", "test", "the paper's own figures"]
    rows = [
        [
            ours.statement.text,
            ours.finding,
            f"{sum(e.finding == 'holds' for e in ours.evidence)} of {len(ours.evidence)}",
            ", ".join(sorted({e.measured.test.kind for e in ours.evidence if e.measured.test}))
            or "-",
            "-" if theirs.finding == "not run" else theirs.finding,
        ]
        for ours, theirs in zip(decided, by_the_paper, strict=True)
    ]
    return PlainTable(columns, rows, left=columns, wrap=True)
