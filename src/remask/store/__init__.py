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
    "config_hash",
    "export",
    "group_alike",
    "group_by_data",
    "labels",
    "read_export",
    "scores",
    "spread",
    "summarise",
    "trial_json",
    "write",
]
