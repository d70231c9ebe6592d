"""Replay memories."""

from remask.memory.kept import KeptRows, challenge, choose_rows, herd
from remask.memory.policies import EMPTY, SPARSE, WINDOW, fair_shares
from remask.memory.replay import ReplayMemory
from remask.memory.replay_samples import ReplayBatch, ReplayMemoryError
from remask.memory.reservoir import Reservoir, ReservoirPlan
from remask.memory.rows import JoinedRows, MappedRows, SampleFileError, StoredRows, fetch

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
]
