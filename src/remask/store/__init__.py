"""The results store: every trial that came to an end, in one SQLite file."""

from remask.record import TrialRecord
from remask.store.cells import Cell, Spread, TrialSummary, scores, summarise
from remask.store.database import StoreError
from remask.store.export import Merged, export, merge, read_export
from remask.store.store import Store

__all__ = [
    "Cell",
    "Merged",
    "Spread",
    "Store",
    "StoreError",
    "TrialRecord",
    "TrialSummary",
    "export",
    "merge",
    "read_export",
    "scores",
    "summarise",
]
