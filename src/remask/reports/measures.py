"""What the page can show of a cell: every metric with its name, its unit and what it means."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from remask.results import COSTS, Cell, Spread, TrialRecord

SETTINGS = {"class_il": "Class-IL", "task_il": "Task-IL"}
"""How the two ways to test are called, by the names of their matrices."""


@dataclass(frozen=True)
class Measure:
    """How the page calls a metric, and how to read it."""

    title: str
    about: str
    better: Literal["higher", "lower"] = "higher"
    unit: Literal["%", "points", "s", "FLOPs", "bytes"] = "%"


_OF_A_SETTING = {
    "A_T": Measure("A_T", "final average accuracy: the mean over tasks after the last one"),
    "F_T": Measure(
        "F_T", "forgetting: points lost since each task was at its best", "lower", "points"
    ),
    "accuracy_over_time": Measure(
        "avg. incremental accuracy", "the mean over the ends of tasks of the accuracy so far"
    ),
    "AAA": Measure("avg. anytime accuracy", "the same over all points within tasks, too"),
    "plasticity": Measure(
        "learning accuracy", "accuracy on each task right after learning it: plasticity"
    ),
    "backward_transfer": Measure(
        "backward transfer",
        "points won (or lost) on earlier tasks since each was learnt",
        "higher",
        "points",
    ),
    "min_ACC": Measure("min-ACC", "the lowest accuracy on each earlier task since it was learnt"),
    "WC_ACC": Measure("WC-ACC", "worst case: min-ACC and the last task's accuracy, weighted"),
    "switch_drop": Measure(
        "drop after a switch",
        "points that old tasks fall in the first tenth of a new one",
        "lower",
        "points",
    ),
}
_OF_COST = {
    "seconds": Measure("training time", "seconds per trial, tests included", "lower", "s"),
    "flops": Measure("FLOPs", "operations of training, worked out", "lower", "FLOPs"),
    "memory_bytes": Measure(
        "memory", "what is kept from task to task beside the net", "lower", "bytes"
    ),
}


def _all() -> dict[str, Measure]:
    found: dict[str, Measure] = {}
    for setting, title in SETTINGS.items():
        for name, one in _OF_A_SETTING.items():
            found[f"{setting}_{name}"] = Measure(
                f"{title} {one.title}", one.about, one.better, one.unit
            )
    for setting, title in SETTINGS.items():
        about = "A_T on training data that was held out"
        found[f"validation_{setting}_A_T"] = Measure(f"validation {title} A_T", about)
    found["class_il_ECE"] = Measure(
        "calibration error",
        "how far the probability of an answer is from how often it is right",
        "lower",
        "points",
    )
    return {**found, **_OF_COST}


ALL_MEASURES = _all()
"""By the name of a score or a cost, in the order of the page."""


def known_measures(cells: Sequence[Cell]) -> dict[str, Measure]:
    """Those that some cell has."""
    return {
        name: measure
        for name, measure in ALL_MEASURES.items()
        if any(not math.isnan(cell_value(cell, name).mean) for cell in cells)
    }


def cell_value(cell: Cell, name: str) -> Spread:
    """A score or a cost over the trials of a cell."""
    return cell.costs[name] if name in COSTS else cell.spreads[name]


def trial_values(record: TrialRecord, scores: Mapping[str, float]) -> dict[str, float]:
    """All scores and costs of a trial that are known."""
    costs = {name: getattr(record, name) for name in COSTS}
    found = {**scores, **{n: v for n, v in costs.items() if v is not None}}
    return {n: found[n] for n in ALL_MEASURES if n in found and not math.isnan(found[n])}
