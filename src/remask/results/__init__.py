"""The results store: every trial that came to an end, in one SQLite file."""

from remask.results.errors import StoreError, StoreMovedError
from remask.results.export import FORMATS, export, trial_json, write
from remask.results.filters import FILTERS
from remask.results.importing import read_export
from remask.results.record import Status, TrialRecord, config_hash
from remask.results.store import Store, TrialOutline
from remask.results.summary import (
    SCORES,
    Cell,
    Spread,
    group_alike,
    group_by_data,
    labels,
    scores,
    spread,
    summarise,
)
from remask.results.table import column_types, flat_row
from remask.results.usual import store_path

__all__ = [
    "FILTERS",
    "FORMATS",
    "SCORES",
    "Cell",
    "Spread",
    "Status",
    "Store",
    "StoreError",
    "StoreMovedError",
    "TrialOutline",
    "TrialRecord",
    "column_types",
    "config_hash",
    "export",
    "flat_row",
    "group_alike",
    "group_by_data",
    "labels",
    "read_export",
    "scores",
    "spread",
    "store_path",
    "summarise",
    "trial_json",
    "write",
]
