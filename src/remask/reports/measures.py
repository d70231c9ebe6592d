"""The measures of a cell: titles, units and meanings, t-tests, and what a mask changes.

Standard deviations are those of the population everywhere in remask, so the squared standard error
of a mean over n trials is std^2 / (n - 1).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from remask.config import TrialConfig
from remask.papers.experiments import PaperCell
from remask.record import TrialRecord
from remask.store.cells import COSTS, Cell, Spread, grouped, spread

SETTINGS = {"class_il": "Class-IL", "task_il": "Task-IL"}
"""Titles of the two test settings."""
MEASURES = {
    f"{setting}_{metric}": f"{title} {metric}"
    for setting, title in SETTINGS.items()
    for metric in ("A_T", "F_T")
}
"""The measures that tables show and papers publish, with their titles."""
VALIDATION_MEASURES = {
    f"validation_{setting}_A_T": f"validation {title} A_T" for setting, title in SETTINGS.items()
}
Verdict = Literal["no significant difference", "better", "worse", "too few trials", "not run"]
LEVEL = 0.05
"""Differences with a p-value below this are significant."""
FEWEST_TRIALS = 3
"""With fewer trials nothing is tested: the standard deviation of two means little."""
CONTRAST_TEST = (
    f"t-test, two-sided, at {100 * LEVEL:g} %, paired over the seeds that both share, Welch's "
    f"where they share fewer than {FEWEST_TRIALS}"
)


@dataclass(frozen=True)
class Measure:
    """The title of a metric, and how to read it."""

    title: str
    about: str
    better: Literal["higher", "lower"] = "higher"
    unit: Literal["%", "points", "s", "FLOPs", "bytes"] = "%"


_lost = partial(Measure, better="lower", unit="points")
_OF_A_SETTING = {
    "A_T": Measure("A_T", "final average accuracy: the mean over tasks after the last one"),
    "F_T": _lost("F_T", "forgetting: points lost since each task was at its best"),
    "accuracy_over_time": Measure(
        "avg. incremental accuracy", "the mean of the average accuracy after every task"
    ),
    "AAA": Measure("avg. anytime accuracy", "the same, over all points within tasks as well"),
    "plasticity": Measure("learning accuracy", "plasticity: accuracy right after learning a task"),
    "backward_transfer": Measure(
        "backward transfer", "points gained on earlier tasks since each was learnt", unit="points"
    ),
    "min_ACC": Measure("min-ACC", "the lowest accuracy on each earlier task since it was learnt"),
    "WC_ACC": Measure("WC-ACC", "worst case: min-ACC and the last task's accuracy, weighted"),
    "switch_drop": _lost(
        "drop after a switch", "lost on old tasks in the first tenth of a new one"
    ),
}
ALL_MEASURES = {
    **{
        f"{setting}_{name}": replace(measure, title=f"{title} {measure.title}")
        for setting, title in SETTINGS.items()
        for name, measure in _OF_A_SETTING.items()
    },
    **{
        n: Measure(title, "A_T on held-out training data")
        for n, title in VALIDATION_MEASURES.items()
    },
    "class_il_ECE": _lost(
        "calibration error",
        "the gap between a prediction's probability and how often it is correct",
    ),
    "seconds": Measure("training time", "seconds per trial, tests included", "lower", "s"),
    "flops": Measure("FLOPs", "operations of training, computed", "lower", "FLOPs"),
    "memory_bytes": Measure(
        "memory", "kept between tasks in addition to the net", "lower", "bytes"
    ),
}
"""All scores and costs by name, in the order of the page."""


def cell_value(cell: Cell, name: str) -> Spread:
    """A score or a cost over the trials of a cell."""
    return cell.costs[name] if name in COSTS else cell.spreads[name]


@dataclass(frozen=True)
class TTest:
    """A t-test of the null hypothesis that both means are equal."""

    kind: Literal["Welch", "paired"]
    difference: float  # of the means
    error: float  # its standard error
    freedom: float  # degrees of freedom

    @property
    def t(self) -> float:
        """The test statistic; infinite if there is a difference without any spread."""
        if self.error:
            return self.difference / self.error
        return math.copysign(math.inf, self.difference) if self.difference else 0.0

    @property
    def p_higher(self) -> float:
        """One-sided p-value of "the first mean is higher"."""
        # `scipy.stats` takes three times as long to import, and its tests are much slower.
        from scipy.special import stdtr  # type: ignore[import-untyped]

        return float(stdtr(self.freedom, -self.t))

    @property
    def p_lower(self) -> float:
        """One-sided p-value of "the first mean is lower"."""
        return replace(self, difference=-self.difference).p_higher

    @property
    def p_different(self) -> float:
        """Two-sided p-value."""
        return min(1.0, 2 * min(self.p_higher, self.p_lower))


def welch(one: Spread, other: Spread) -> TTest:
    """Welch's test of two independent samples."""
    freedoms = np.array([one.trials - 1, other.trials - 1])
    errors = np.array([one.std**2, other.std**2]) / freedoms
    error = float(errors.sum())
    # The degrees of freedom by Welch and Satterthwaite.
    freedom = error**2 / float((errors**2 / freedoms).sum()) if error else float(freedoms.sum())
    return TTest("Welch", one.mean - other.mean, math.sqrt(error), freedom)


def paired(differences: Sequence[float]) -> TTest:
    """The paired test of the differences between two samples, seed by seed."""
    found = spread(differences)
    freedom = found.trials - 1
    return TTest("paired", found.mean, found.std / math.sqrt(freedom), freedom)


def t_test(one: Mapping[int, float], other: Mapping[int, float]) -> TTest | None:
    """Test two samples by seed: paired if they share enough seeds, else Welch's.

    Returns None if either has too few trials.
    """
    if min(len(one), len(other)) < FEWEST_TRIALS:
        return None
    shared = [seed for seed in one if seed in other]
    if len(shared) >= FEWEST_TRIALS:
        return paired([one[seed] - other[seed] for seed in shared])
    return welch(spread(one.values()), spread(other.values()))


def verdict(test: TTest | None, *, higher_is_better: bool) -> Verdict:
    """Whether the first mean is significantly better or worse than the second."""
    if test is None:
        return "too few trials"
    if test.p_different >= LEVEL:
        return "no significant difference"
    return "better" if (test.t > 0) == higher_is_better else "worse"


def by_seed(measure: str, cell: Cell | None) -> dict[int, float]:
    """A measure of each finished trial in which it is defined, by seed."""
    if cell is None:
        return {}
    if measure.startswith("confidence"):
        values = [_confidence(measure, record) for record in cell.finished]
    else:
        values = cell.values(measure)
    seeds = [record.seed for record in cell.finished]
    return {s: value for s, value in zip(seeds, values, strict=True) if not math.isnan(value)}


def _confidence(measure: str, record: TrialRecord) -> float:
    """The mean probability of the true class in the first or the last task, in percent."""
    if not record.tasks:
        return math.nan
    classes = record.tasks[0] if measure == "confidence_first_task" else record.tasks[-1]
    return 100 * float(np.mean([record.confidence[label] for label in classes]))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction for several tests; NaN values are ignored and stay NaN."""
    known = sorted((p, index) for index, p in enumerate(p_values) if not math.isnan(p))
    corrected = [math.nan] * len(p_values)
    largest = 0.0
    for rank, (p, index) in enumerate(known):
        largest = max(largest, min(1.0, p * (len(known) - rank)))
        corrected[index] = largest
    return corrected


def system_order(cell: Cell) -> tuple[object, ...]:
    """Sort cells by method and other settings, each before its masked forms."""
    return place_of(cell.config, cell.label)[2:]


def place_of(one: TrialConfig | PaperCell, label: str) -> tuple[object, ...]:
    """Sort by benchmark, buffer, method and other settings, each before its masked forms."""
    is_number = isinstance(one.mask, float)
    masked = 0 if one.mask is None else 1 if is_number else 2
    settings = label.partition(", ")[2]
    return one.benchmark, one.buffer, one.method, settings, masked, one.mask if is_number else 0.0


def alike_but_mask(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Group the cells whose settings differ only in the mask and that have learnt the same."""

    def key(cell: Cell) -> tuple[TrialConfig, str]:
        unmasked = {"mask": None, "positive_mask": False, "seed": 0}
        return cell.config.model_copy(update=unmasked), cell.learnt

    return list(grouped(cells, key).values())


def contrasts(cells: Iterable[Cell]) -> list[tuple[Cell, Cell]]:
    """Pairs of a masked cell and the same one without a mask."""
    return [
        (masked, plain)
        for alike in alike_but_mask(cell for cell in cells if cell.trials)
        for plain in alike
        if plain.config.mask is None
        for masked in alike
        if masked.config.mask is not None
    ]
