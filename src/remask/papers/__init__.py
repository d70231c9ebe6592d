"""What was published, as data: claims to compare with, settings to start from, experiments."""

from remask.papers.experiments import (
    EXPERIMENTS,
    PaperCell,
    experiment_cells,
    experiments_of,
    published_benchmarks,
    published_figures,
)
from remask.papers.published import Claim, Settings, claims, published_settings
from remask.papers.statements import Expectation, Statement, statements

__all__ = [
    "EXPERIMENTS",
    "Claim",
    "Expectation",
    "PaperCell",
    "Settings",
    "Statement",
    "claims",
    "experiment_cells",
    "experiments_of",
    "published_benchmarks",
    "published_figures",
    "published_settings",
    "statements",
]
