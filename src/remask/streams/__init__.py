"""The stream: tasks, their samples in order, and what the networks receive."""

from remask.holdout import Subset, check_share, hold_out, set_apart
from remask.streams.description import DataDescription, Normaliser, StreamError
from remask.streams.samples import Samples, batch_sizes, epoch_batches
from remask.streams.task import Task, TaskData, benchmark_tasks, labels_in, union_task

__all__ = [
    "DataDescription",
    "Normaliser",
    "Samples",
    "StreamError",
    "Subset",
    "Task",
    "TaskData",
    "batch_sizes",
    "benchmark_tasks",
    "check_share",
    "epoch_batches",
    "hold_out",
    "labels_in",
    "set_apart",
    "union_task",
]
