"""Each system with a mask against the same one without: our trials, paired by seed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from remask.reports.comparison import MEASURES
from remask.reports.findings import by_seed, t_test
from remask.reports.measures import ALL_MEASURES
from remask.reports.student import FEWEST_TRIALS, LEVEL, TTest
from remask.results import Cell, group_but_mask

CONTRAST_TEST = (
    f"t-test, two-sided, at {100 * LEVEL:g} %, paired over the seeds that both share, Welch's "
    f"where they share fewer than {FEWEST_TRIALS}"
)


@dataclass(frozen=True)
class Difference:
    """One measure of two cells."""

    more: float
    """What the first has more than the second; in pairs where the test is paired."""
    test: TTest | None
    """None: too few trials."""
    higher_is_better: bool

    @property
    def verdict(self) -> Literal["better", "worse", "not told apart", "too few trials"]:
        """Of the first, by the test."""
        if self.test is None:
            return "too few trials"
        if self.test.p_different >= LEVEL:
            return "not told apart"
        return "better" if (self.test.t > 0) == self.higher_is_better else "worse"


@dataclass(frozen=True)
class Contrast:
    """A masked cell, the one that differs from it in the mask alone, and what the mask does."""

    plain: Cell
    masked: Cell
    differences: dict[str, Difference]
    """By measure, see MEASURES; what was not measured is left out."""


def contrasts(cells: Sequence[Cell]) -> list[Contrast]:
    """Every masked cell beside its unmasked one, in the order of the cells."""
    found = []
    for alike in group_but_mask(cell for cell in cells if cell.trials):
        plain = next((cell for cell in alike if cell.config.mask is None), None)
        if plain is not None:
            found += [_contrast(plain, c) for c in alike if c.config.mask is not None]
    return found


def _contrast(plain: Cell, masked: Cell) -> Contrast:
    found = {name: difference(name, masked, plain) for name in MEASURES}
    return Contrast(plain, masked, {n: d for n, d in found.items() if not math.isnan(d.more)})


def difference(measure: str, one: Cell, other: Cell) -> Difference:
    """Compare a measure of two cells, seed by seed where they share enough of them."""
    ours, theirs = by_seed(measure, one), by_seed(measure, other)
    test = t_test(ours, theirs)
    shared = [seed for seed in ours if seed in theirs]
    if test is not None and test.kind == "paired":
        more = _mean([ours[seed] - theirs[seed] for seed in shared])
    else:
        more = _mean(list(ours.values())) - _mean(list(theirs.values()))
    return Difference(more, test, ALL_MEASURES[measure].better == "higher")


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan
