"""Reports: what is in the store, for people. They read the store and nothing else."""

from remask.reports.choosing import best_by_validation
from remask.reports.comparison import (
    ComparedCell,
    Comparison,
    compare,
    comparison_markdown,
    comparison_summary,
    comparison_table,
    paper_cell,
    verdicts,
)
from remask.reports.data import Knowledge, page_data
from remask.reports.decisions import decision_markdown, decision_table
from remask.reports.figures import write_figures
from remask.reports.findings import TEST, Decision, decide, decide_by_the_paper
from remask.reports.page import page_html
from remask.reports.tables import PlainTable, results_table

__all__ = [
    "TEST",
    "ComparedCell",
    "Comparison",
    "Decision",
    "Knowledge",
    "PlainTable",
    "best_by_validation",
    "compare",
    "comparison_markdown",
    "comparison_summary",
    "comparison_table",
    "decide",
    "decide_by_the_paper",
    "decision_markdown",
    "decision_table",
    "page_data",
    "page_html",
    "paper_cell",
    "results_table",
    "verdicts",
    "write_figures",
]
