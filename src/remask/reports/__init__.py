"""Reports: what is in the store, for people. They read results and papers, and nothing else."""

from remask.reports.choosing import best_by_validation, masks_chosen
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
from remask.reports.data import ConfigFacts, page_data, published_beside
from remask.reports.decisions import decision_markdown, decision_table
from remask.reports.figures import plot, write_figures
from remask.reports.findings import TEST, Decision, decide, decide_by_the_paper
from remask.reports.history import LearntVisit, classes_table, visits_table, write_history
from remask.reports.page import page_html
from remask.reports.tables import (
    CURVES_NOTE,
    PlainTable,
    curve_markdown,
    curve_table,
    results_table,
)

__all__ = [
    "CURVES_NOTE",
    "TEST",
    "ComparedCell",
    "Comparison",
    "ConfigFacts",
    "Decision",
    "LearntVisit",
    "PlainTable",
    "best_by_validation",
    "classes_table",
    "compare",
    "comparison_markdown",
    "comparison_summary",
    "comparison_table",
    "curve_markdown",
    "curve_table",
    "decide",
    "decide_by_the_paper",
    "decision_markdown",
    "decision_table",
    "masks_chosen",
    "page_data",
    "page_html",
    "paper_cell",
    "plot",
    "published_beside",
    "results_table",
    "verdicts",
    "visits_table",
    "write_figures",
    "write_history",
]
