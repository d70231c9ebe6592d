"""The stream: which samples arrive, in which order, in which batches."""

from remask.streams.holdout import Part, check_share, hold_out
from remask.streams.phases import Phase, task_phases, union_phase
from remask.streams.plan import batch_sizes, epoch_batches

__all__ = [
    "Part",
    "Phase",
    "batch_sizes",
    "check_share",
    "epoch_batches",
    "hold_out",
    "task_phases",
    "union_phase",
]
