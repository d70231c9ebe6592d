"""Classifiers that need no gradient steps: computed from sums over samples, which is all they store."""

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
from remask.heads.statistics import ClassStatistics, StatisticsError, accumulate

__all__ = [
    "RIDGE_GRID",
    "SHRINKAGE_GRID",
    "ClassStatistics",
    "HeadName",
    "LinearHead",
    "StatisticsError",
    "accumulate",
    "choose_held_out",
    "choose_penalty",
    "choose_shrinkage",
    "ncm",
    "ridge",
    "slda",
]
