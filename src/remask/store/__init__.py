"""The results store: every trial that came to an end, in one SQLite file."""

from remask.store.errors import StoreError
from remask.store.export import FORMATS, export, trial_json, write
from remask.store.filters import FILTERS
from remask.store.record import Status, TrialRecord, config_hash
from remask.store.store import Store
from remask.store.summary import Cell, Score, Spread, scores, summarise

__all__ = [
    "FILTERS",
    "FORMATS",
    "Cell",
    "Score",
    "Spread",
    "Status",
    "Store",
    "StoreError",
    "TrialRecord",
    "config_hash",
    "export",
    "scores",
    "summarise",
    "trial_json",
    "write",
]
