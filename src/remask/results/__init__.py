"""The results store: every trial that came to an end, in one SQLite file."""

from remask.record import Answers, Curve, Losses, MaskChoice, Status, TrialRecord
from remask.results.errors import NoResultsError, StoreError, StoreMovedError
from remask.results.export import (
    FORMATS,
    column_types,
    export,
    flat_row,
    read_export,
    trial_json,
    write,
)
from remask.results.filters import FILTERS, check_filters
from remask.results.labels import cell_labels
from remask.results.merging import Merged, merge, read_store
from remask.results.store import Store, TrialOutline, store_path
from remask.results.summary import (
    AnyCell,
    Cell,
    ListedCell,
    group_alike,
    group_but_mask,
    group_by_data,
    summarise,
    summarise_listed,
)
from remask.results.trial_scores import COSTS, SCORES, Spread, Spreads, scores, spread
from remask.results.trial_summary import TrialSummary, summary_of

__all__ = [
    "COSTS",
    "FILTERS",
    "FORMATS",
    "SCORES",
    "Answers",
    "AnyCell",
    "Cell",
    "Curve",
    "ListedCell",
    "Losses",
    "MaskChoice",
    "Merged",
    "NoResultsError",
    "Spread",
    "Spreads",
    "Status",
    "Store",
    "StoreError",
    "StoreMovedError",
    "TrialOutline",
    "TrialRecord",
    "TrialSummary",
    "cell_labels",
    "check_filters",
    "column_types",
    "export",
    "flat_row",
    "group_alike",
    "group_but_mask",
    "group_by_data",
    "merge",
    "read_export",
    "read_store",
    "scores",
    "spread",
    "store_path",
    "summarise",
    "summarise_listed",
    "summary_of",
    "trial_json",
    "write",
]
