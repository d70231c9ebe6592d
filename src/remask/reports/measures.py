"""The measures of a cell: their titles, units and meanings."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from remask.record import TrialRecord
from remask.store.cells import COSTS, Cell, Spread

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


@dataclass(frozen=True)
class Measure:
    """The title of a metric, and how to read it."""

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
    "AAA": Measure("avg. anytime accuracy", "the same, over all points within tasks as well"),
    "plasticity": Measure(
        "learning accuracy", "accuracy on each task right after learning it: plasticity"
    ),
    "backward_transfer": Measure(
        "backward transfer",
        "points gained (or lost) on earlier tasks since each was learnt",
        unit="points",
    ),
    "min_ACC": Measure("min-ACC", "the lowest accuracy on each earlier task since it was learnt"),
    "WC_ACC": Measure("WC-ACC", "worst case: min-ACC and the last task's accuracy, weighted"),
    "switch_drop": Measure(
        "drop after a switch",
        "points that old tasks lose in the first tenth of a new one",
        "lower",
        "points",
    ),
}

ALL_MEASURES = {
    **{
        f"{setting}_{name}": replace(measure, title=f"{title} {measure.title}")
        for setting, title in SETTINGS.items()
        for name, measure in _OF_A_SETTING.items()
    },
    **{
        name: Measure(title, "A_T on held-out training data")
        for name, title in VALIDATION_MEASURES.items()
    },
    "class_il_ECE": Measure(
        "calibration error",
        "the gap between the probability of a prediction and how often it is correct",
        "lower",
        "points",
    ),
    "seconds": Measure("training time", "seconds per trial, tests included", "lower", "s"),
    "flops": Measure("FLOPs", "operations of training, computed", "lower", "FLOPs"),
    "memory_bytes": Measure(
        "memory", "bytes kept between tasks in addition to the net", "lower", "bytes"
    ),
}
"""All scores and costs by name, in the order of the page."""


def known_measures(cells: Sequence[Cell]) -> dict[str, Measure]:
    """The measures that are defined for some cell."""
    return {
        name: measure
        for name, measure in ALL_MEASURES.items()
        if any(not math.isnan(cell_value(cell, name).mean) for cell in cells)
    }


def cell_value(cell: Cell, name: str) -> Spread:
    """A score or a cost over the trials of a cell."""
    return cell.costs[name] if name in COSTS else cell.spreads[name]


def trial_values(record: TrialRecord, scores: Mapping[str, float]) -> dict[str, float]:
    """All scores and costs of a trial that are defined."""
    costs = {name: getattr(record, name) for name in COSTS}
    found = {**scores, **{n: v for n, v in costs.items() if v is not None}}
    return {n: found[n] for n in ALL_MEASURES if n in found and not math.isnan(found[n])}
