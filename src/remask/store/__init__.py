"""The results store: every trial that came to an end, in one SQLite file."""

from remask.record import Answers, Curve, Losses, MaskChoice, Status, TrialRecord
from remask.store.cells import (
    Cell,
    TrialSummary,
    cell_labels,
    group_alike,
    group_but_mask,
    group_by_data,
    summarise,
    summarise_listed,
    summary_of,
)
from remask.store.errors import NoResultsError, StoreError, StoreMovedError
from remask.store.export import (
    FORMATS,
    column_types,
    export,
    flat_row,
    read_export,
    trial_json,
)
from remask.store.filters import FILTERS, check_filters
from remask.store.merge import Merged, merge
from remask.store.scores import COSTS, SCORES, Spread, scores, spread, spreads
from remask.store.store import Store, store_path

__all__ = [
    "COSTS",
    "FILTERS",
    "FORMATS",
    "SCORES",
    "Answers",
    "Cell",
    "Curve",
    "Losses",
    "MaskChoice",
    "Merged",
    "NoResultsError",
    "Spread",
    "Status",
    "Store",
    "StoreError",
    "StoreMovedError",
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
    "scores",
    "spread",
    "spreads",
    "store_path",
    "summarise",
    "summarise_listed",
    "summary_of",
    "trial_json",
]
