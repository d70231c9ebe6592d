"""The paper's statements, decided by our data and by the paper's own figures.

Every comparison of a statement is Welch's t-test of two independent samples, one-sided, in both
directions. The p-values of a statement's comparisons are corrected together (Holm), and a
comparison is decided where the corrected p lies below 5 %.
"""

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from remask.errors import RemaskError
from remask.papers import Expectation, PaperCell, Statement, published_figures
from remask.store import Cell, Spread, TrialRecord, scores, spread

Finding = Literal["holds", "contradicted", "undecided", "not run"]

TEST = (
    "Welch's t-test of two samples, one-sided, at 5 %, Holm-corrected over the comparisons of a "
    "statement"
)
_LEVEL = 0.05


class MissingPackageError(RemaskError):
    """A package that is an extra is not installed; the message says which."""


@dataclass(frozen=True)
class Sample:
    """What a test needs to know of a sample."""

    spread: Spread
    """With the population standard deviation."""
    size: int


@dataclass(frozen=True)
class Evidence:
    """One comparison of a statement, with what was measured."""

    expectation: Expectation
    higher: Sample | None
    lower: Sample | None
    p: float
    """Corrected, of the expected direction; NaN if not run."""
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
        holding, against = found.count("holds"), found.count("contradicted")
        enough, too_many = {
            "every": (holding == len(found), against > 0),
            "most": (2 * holding > len(found), 2 * against >= len(found)),
            "some": (holding > 0, against == len(found)),
        }[self.statement.quantifier]
        return "holds" if enough else "contradicted" if too_many else "undecided"


def decide(statements: Sequence[Statement], cells: Mapping[PaperCell, Cell]) -> list[Decision]:
    """What our trials say to each statement."""

    def measured(measure: str, cell: PaperCell) -> Sample | None:
        ours = cells.get(cell)
        if ours is None or ours.trials < 2:
            return None
        return Sample(spread([_value(measure, record) for record in ours.finished]), ours.trials)

    return [_decide(statement, measured) for statement in statements]


def decide_by_the_paper(statements: Sequence[Statement]) -> list[Decision]:
    """What the paper's own figures say to each statement, by the same test."""

    def published(measure: str, cell: PaperCell) -> Sample | None:
        claim = published_figures(cell).get(measure)
        if claim is None or claim.std is None:
            return None
        return Sample(Spread(claim.mean, claim.std), claim.trials)

    return [_decide(statement, published) for statement in statements]


def _decide(statement: Statement, measured: Callable[[str, PaperCell], Sample | None]) -> Decision:
    pairs = [
        (measured(expected.measure, expected.higher), measured(expected.measure, expected.lower))
        for expected in statement.expectations
    ]
    for_it = _holm([_welch(higher, lower) for higher, lower in pairs])
    against_it = _holm([_welch(lower, higher) for higher, lower in pairs])
    return Decision(
        statement,
        tuple(
            Evidence(expectation, higher, lower, p, _finding(p, p_against))
            for expectation, (higher, lower), p, p_against in zip(
                statement.expectations, pairs, for_it, against_it, strict=True
            )
        ),
    )


def _finding(p: float, p_against: float) -> Finding:
    if math.isnan(p):
        return "not run"
    return "holds" if p < _LEVEL else "contradicted" if p_against < _LEVEL else "undecided"


def _welch(higher: Sample | None, lower: Sample | None) -> float:
    """The p-value of "the first mean is not the higher one"; NaN if either was not measured."""
    if higher is None or lower is None or math.isnan(higher.spread.mean + lower.spread.mean):
        return math.nan
    if higher.spread.std == lower.spread.std == 0:  # no spread at all: the test is not defined
        return 0.0 if higher.spread.mean > lower.spread.mean else 1.0
    return float(
        _statistics()
        .ttest_ind_from_stats(
            *_unbiased(higher), *_unbiased(lower), equal_var=False, alternative="greater"
        )
        .pvalue
    )


def _unbiased(sample: Sample) -> tuple[float, float, int]:
    """Mean, sample standard deviation (ddof=1), size."""
    return (
        sample.spread.mean,
        sample.spread.std * math.sqrt(sample.size / (sample.size - 1)),
        sample.size,
    )


def _holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction; what is NaN stays so and does not count."""
    known = sorted((p, index) for index, p in enumerate(p_values) if not math.isnan(p))
    corrected = [math.nan] * len(p_values)
    largest = 0.0
    for rank, (p, index) in enumerate(known):
        largest = max(largest, min(1.0, p * (len(known) - rank)))
        corrected[index] = largest
    return corrected


def _value(measure: str, record: TrialRecord) -> float:
    """A measure of one trial."""
    if not measure.startswith("confidence"):
        return scores(record)[measure]
    of_a_task = len(record.confidence) // len(record.class_il)
    first = measure == "confidence_first_task"
    classes = record.confidence[:of_a_task] if first else record.confidence[-of_a_task:]
    return 100 * float(np.mean(classes))


def _statistics() -> Any:
    try:
        return importlib.import_module("scipy.stats")
    except ImportError:
        raise MissingPackageError(
            "deciding the paper's statements needs SciPy: pip install 'remask[report]'"
        ) from None
