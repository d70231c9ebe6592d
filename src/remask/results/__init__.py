"""The results store: every trial that came to an end, in one SQLite file."""

from remask.results.errors import StoreError, StoreMovedError
from remask.results.export import (
    FORMATS,
    column_types,
    export,
    flat_row,
    read_export,
    trial_json,
    write,
)
from remask.results.filters import FILTERS
from remask.results.record import ChoiceRecord, Curve, Losses, Status, TrialRecord
from remask.results.store import Store, TrialOutline, store_path
from remask.results.summary import (
    SCORES,
    Cell,
    Spread,
    cell_labels,
    group_alike,
    group_by_data,
    scores,
    spread,
    summarise,
)

__all__ = [
    "FILTERS",
    "FORMATS",
    "SCORES",
    "Cell",
    "ChoiceRecord",
    "Curve",
    "Losses",
    "Spread",
    "Status",
    "Store",
    "StoreError",
    "StoreMovedError",
    "TrialOutline",
    "TrialRecord",
    "cell_labels",
    "column_types",
    "export",
    "flat_row",
    "group_alike",
    "group_by_data",
    "read_export",
    "scores",
    "spread",
    "store_path",
    "summarise",
    "trial_json",
    "write",
]
