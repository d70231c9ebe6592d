"""The stream: which samples arrive, in which order, in which batches."""

from remask.streams.phases import Phase, task_phases, union_phase
from remask.streams.plan import batch_sizes, epoch_batches

__all__ = ["Phase", "batch_sizes", "epoch_batches", "task_phases", "union_phase"]
