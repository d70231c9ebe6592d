"""Replay memories: what is kept of the past, and how it is drawn. One policy a file."""

from remask.memory.reservoir import Reservoir, ReservoirPlan, plan_reservoir

__all__ = ["Reservoir", "ReservoirPlan", "plan_reservoir"]
