"""Reports: what is in the store, for people. They read the store and nothing else."""

from remask.report.choosing import best_by_validation
from remask.report.comparison import (
    ComparedCell,
    Comparison,
    compare,
    comparison_markdown,
    comparison_summary,
    comparison_table,
    paper_cell,
    verdicts,
)
from remask.report.data import Knowledge, page_data
from remask.report.figures import write_figures
from remask.report.findings import TEST, Decision, decide, decide_by_the_paper
from remask.report.page import page_html
from remask.report.tables import results_table

__all__ = [
    "TEST",
    "ComparedCell",
    "Comparison",
    "Decision",
    "Knowledge",
    "best_by_validation",
    "compare",
    "comparison_markdown",
    "comparison_summary",
    "comparison_table",
    "decide",
    "decide_by_the_paper",
    "page_data",
    "page_html",
    "paper_cell",
    "results_table",
    "verdicts",
    "write_figures",
]
