"""Reports: what is in the store, for people. They read the store and nothing else."""

from remask.report.comparison import (
    Comparison,
    compare,
    comparison_markdown,
    comparison_table,
    verdicts,
)
from remask.report.tables import results_table

__all__ = [
    "Comparison",
    "compare",
    "comparison_markdown",
    "comparison_table",
    "results_table",
    "verdicts",
]
