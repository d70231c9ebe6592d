"""Classifiers computed from sums over samples, without gradient steps and without replay."""

from remask.heads.closed_form import (
    RIDGE_GRID,
    SHRINKAGE_GRID,
    HeadName,
    LinearHead,
    choose_held_out,
    choose_penalty,
    choose_shrinkage,
    ncm,
    ridge,
    slda,
)
from remask.heads.per_class import PerClassStatistics, class_bytes
from remask.heads.statistics import ClassStatistics, StatisticsError, accumulate

__all__ = [
    "RIDGE_GRID",
    "SHRINKAGE_GRID",
    "ClassStatistics",
    "HeadName",
    "LinearHead",
    "PerClassStatistics",
    "StatisticsError",
    "accumulate",
    "choose_held_out",
    "choose_penalty",
    "choose_shrinkage",
    "class_bytes",
    "ncm",
    "ridge",
    "slda",
]
