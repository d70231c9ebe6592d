"""The stream: tasks, which samples arrive, in which order, and how they are seen."""

from remask.streams.augmentation import Standardise
from remask.streams.description import DataDescription, StreamError
from remask.streams.holdout import Part, check_share, hold_out, set_apart
from remask.streams.plan import batch_sizes, epoch_batches
from remask.streams.samples import Samples
from remask.streams.task import Task, TaskData, benchmark_tasks, labels_in, union_task

__all__ = [
    "DataDescription",
    "Part",
    "Samples",
    "Standardise",
    "StreamError",
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
