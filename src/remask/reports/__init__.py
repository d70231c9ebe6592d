"""Reports: what is in the store, for people. They read results and papers, and nothing else."""

from typing import TYPE_CHECKING

from remask.lazy_names import lazy_names

if TYPE_CHECKING:
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
    from remask.reports.history import (
        KeptClass,
        LearnerNow,
        LearntVisit,
        classes_table,
        is_page,
        visits_table,
        write_history,
    )
    from remask.reports.page import page_html
    from remask.reports.tables import (
        CURVES_NOTE,
        PlainTable,
        curve_markdown,
        curve_table,
        results_table,
    )

_MODULES = {
    "choosing": "best_by_validation masks_chosen",
    "comparison": "ComparedCell Comparison compare comparison_markdown comparison_summary "
    "comparison_table paper_cell verdicts",
    "data": "ConfigFacts page_data published_beside",
    "decisions": "decision_markdown decision_table",
    "figures": "plot write_figures",
    "findings": "TEST Decision decide decide_by_the_paper",
    "history": "KeptClass LearnerNow LearntVisit classes_table is_page visits_table write_history",
    "page": "page_html",
    "tables": "CURVES_NOTE PlainTable curve_markdown curve_table results_table",
}
"""Where the names are: a table waits neither for figures nor for statistics."""

__all__ = [
    "CURVES_NOTE",
    "TEST",
    "ComparedCell",
    "Comparison",
    "ConfigFacts",
    "Decision",
    "KeptClass",
    "LearnerNow",
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
    "is_page",
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

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _MODULES)
