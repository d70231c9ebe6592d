"""Classifiers computed from sums over samples, without gradient steps and without replay."""

from remask.heads.closed_form import (
    RIDGE_GRID,
    HeadName,
    LinearHead,
    choose_penalty,
    choose_shrinkage,
    ncm,
    ridge,
    slda,
)
from remask.heads.statistics import (
    ClassStatistics,
    PerClassStatistics,
    StatisticsError,
    accumulate,
)

__all__ = [
    "RIDGE_GRID",
    "ClassStatistics",
    "HeadName",
    "LinearHead",
    "PerClassStatistics",
    "StatisticsError",
    "accumulate",
    "choose_penalty",
    "choose_shrinkage",
    "ncm",
    "ridge",
    "slda",
]
