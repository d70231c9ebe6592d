"""Replay memories."""

from remask.memory.balanced import EMPTY, fair_shares, plan_balanced
from remask.memory.contents import Reservoir
from remask.memory.kept import KeptRows
from remask.memory.merging import SPARSE, WINDOW
from remask.memory.replay import ReplayBatch, ReplayMemory, ReplayMemoryError
from remask.memory.reservoir import ReservoirPlan, plan_reservoir
from remask.memory.rows import JoinedRows, MappedRows, SampleFileError, StoredRows, fetch
from remask.memory.selection import challenge, choose_rows, herd

__all__ = [
    "EMPTY",
    "SPARSE",
    "WINDOW",
    "JoinedRows",
    "KeptRows",
    "MappedRows",
    "ReplayBatch",
    "ReplayMemory",
    "ReplayMemoryError",
    "Reservoir",
    "ReservoirPlan",
    "SampleFileError",
    "StoredRows",
    "challenge",
    "choose_rows",
    "fair_shares",
    "fetch",
    "herd",
    "plan_balanced",
    "plan_reservoir",
]
