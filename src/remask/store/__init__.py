"""The results store: every trial that came to an end, in one SQLite file."""

from remask.store.errors import StoreError, StoreMovedError
from remask.store.export import FORMATS, export, trial_json, write
from remask.store.filters import FILTERS
from remask.store.importing import read_export
from remask.store.record import Status, TrialRecord, config_hash
from remask.store.store import Store, TrialOutline
from remask.store.summary import (
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
from remask.store.table import column_types, flat_row
from remask.store.usual import store_path

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
