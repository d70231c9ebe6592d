"""Replay memories: what is kept of the past. One policy per file."""

from remask.memory.challenge import challenge
from remask.memory.herding import herd
from remask.memory.kept import KeptRows
from remask.memory.quota import choose_rows
from remask.memory.reservoir import Reservoir, ReservoirPlan, plan_reservoir

__all__ = [
    "KeptRows",
    "Reservoir",
    "ReservoirPlan",
    "challenge",
    "choose_rows",
    "herd",
    "plan_reservoir",
]
