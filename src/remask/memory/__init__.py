"""Replay memories: what is kept of the past, and how it is drawn. One policy a file."""

from remask.memory.herding import herd
from remask.memory.quota import choose_rows
from remask.memory.reservoir import Reservoir, ReservoirPlan, plan_reservoir

__all__ = ["Reservoir", "ReservoirPlan", "choose_rows", "herd", "plan_reservoir"]
