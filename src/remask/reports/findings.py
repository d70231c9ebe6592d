"""The paper's statements, decided by our data and by the paper's own figures.

Every comparison of a statement is a t-test, one-sided, in both directions: paired over the seeds
that our two cells share, because a seed gives both the same initial weights and the same stream;
Welch's of two independent samples where they share too few, and for the paper's own figures. The
p-values of a statement's comparisons are corrected together (Holm), and a comparison is decided
where the corrected p lies below 5 %.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from remask.papers import Expectation, PaperCell, Statement, published_figures
from remask.reports.student import FEWEST_TRIALS, LEVEL, TTest, paired, welch
from remask.results import Cell, Spread, TrialRecord, spread

Finding = Literal["holds", "contradicted", "undecided", "too few trials", "not run"]

TEST = (
    f"t-test, one-sided, at {100 * LEVEL:g} %, Holm-corrected over the comparisons of a statement; "
    f"paired over the seeds that our two cells share, Welch's where they share fewer than "
    f"{FEWEST_TRIALS} and for the paper's own figures"
)


@dataclass(frozen=True)
class Measured:
    """Both sides of a comparison as they were measured, and the test of them."""

    higher: Spread | None
    lower: Spread | None
    test: TTest | None
    """That the first is higher; None if either was not run, or has too few trials."""


@dataclass(frozen=True)
class Evidence:
    """One comparison of a statement, with what was measured."""

    expectation: Expectation
    measured: Measured
    p: float
    """Corrected, of the expected direction; NaN if nothing was tested."""
    finding: Finding


@dataclass(frozen=True)
class Decision:
    """A statement, and what data says to it."""

    statement: Statement
    evidence: tuple[Evidence, ...]

    @property
    def finding(self) -> Finding:
        """Whether every, most or some of the comparisons hold, as the statement says."""
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
    """What our trials say to each statement."""

    def measured(expected: Expectation) -> Measured:
        higher = by_seed(expected.measure, cells.get(expected.higher))
        lower = by_seed(expected.measure, cells.get(expected.lower))
        return Measured(_spread(higher), _spread(lower), t_test(higher, lower))

    return [_decide(statement, measured) for statement in statements]


def decide_by_the_paper(statements: Sequence[Statement]) -> list[Decision]:
    """What the paper's own figures say to each statement, by Welch's test."""

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
    for_it = _holm([m.test.p_higher if m.test else math.nan for m in found])
    against_it = _holm([m.test.p_lower if m.test else math.nan for m in found])
    return Decision(
        statement,
        tuple(
            Evidence(expectation, measured, p, _finding(measured, p, p_against))
            for expectation, measured, p, p_against in zip(
                statement.expectations, found, for_it, against_it, strict=True
            )
        ),
    )


def _finding(measured: Measured, p: float, p_against: float) -> Finding:
    if measured.higher is None or measured.lower is None:
        return "not run"
    if measured.test is None:
        return "too few trials"
    return "holds" if p < LEVEL else "contradicted" if p_against < LEVEL else "undecided"


def by_seed(measure: str, cell: Cell | None) -> dict[int, float]:
    """A measure of each finished trial, where it has one."""
    if cell is None:
        return {}
    if measure.startswith("confidence"):
        values = [_confidence(measure, record) for record in cell.finished]
    else:
        values = cell.values(measure)
    seeds = [record.seed for record in cell.finished]
    return {s: value for s, value in zip(seeds, values, strict=True) if not math.isnan(value)}


def _spread(values: Mapping[int, float]) -> Spread | None:
    return spread(list(values.values())) if values else None


def t_test(higher: Mapping[int, float], lower: Mapping[int, float]) -> TTest | None:
    """Test two cells' values by seed: paired, or Welch's; None if there are too few of them."""
    if min(len(higher), len(lower)) < FEWEST_TRIALS:
        return None
    shared = [seed for seed in higher if seed in lower]
    if len(shared) >= FEWEST_TRIALS:
        return paired([higher[seed] - lower[seed] for seed in shared])
    return welch(spread(list(higher.values())), spread(list(lower.values())))


def _holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction; what is NaN stays so and does not count."""
    known = sorted((p, index) for index, p in enumerate(p_values) if not math.isnan(p))
    corrected = [math.nan] * len(p_values)
    largest = 0.0
    for rank, (p, index) in enumerate(known):
        largest = max(largest, min(1.0, p * (len(known) - rank)))
        corrected[index] = largest
    return corrected


def _confidence(measure: str, record: TrialRecord) -> float:
    """The mean probability of the true class in the first or the last task, in percent."""
    if not record.tasks:
        return math.nan
    classes = record.tasks[0] if measure == "confidence_first_task" else record.tasks[-1]
    return 100 * float(np.mean([record.confidence[label] for label in classes]))
