"""Data: datasets and their fetching, benchmarks, users' own data, tasks and their samples."""

from typing import TYPE_CHECKING

from remask.lazy_names import lazy_names

if TYPE_CHECKING:
    from remask.data.benchmark import Benchmark, resplit
    from remask.data.cache import cache_folder, data_folder, fetch, is_complete, load, verify, where
    from remask.data.classes import SplitError, split_classes, spread_classes
    from remask.data.dataset import Arrays, Dataset, FileStatus
    from remask.data.datasets import DATASETS, find_dataset
    from remask.data.description import DataDescription, Normaliser, StreamError
    from remask.data.holdout import Subset, check_share, hold_out, set_apart
    from remask.data.image_files import ENDINGS, ImageReader, Listing, list_classes
    from remask.data.loading import load_benchmark
    from remask.data.originals import DataError, Progress
    from remask.data.own import arrays, from_dataset, image_folder
    from remask.data.reading import Data, read
    from remask.data.registry import BENCHMARKS, BenchmarkInfo, check_name
    from remask.data.samples import Samples, batch_sizes, epoch_batches
    from remask.data.task import Task, TaskData, benchmark_tasks, labels_in, union_task
    from remask.data.texts import TextFile, TextReader
    from remask.data.user_arrays import ArrayReader
    from remask.data.user_samples import (
        SKIP_UNREADABLE,
        InputFormat,
        Labels,
        SampleReader,
        Skipped,
        Unreadable,
        UnreadableImageWarning,
        checked_name,
        class_name,
        class_names,
        in_order,
        sample_bytes,
    )

_MODULES = {
    "benchmark": "Benchmark resplit",
    "cache": "cache_folder data_folder fetch is_complete load verify where",
    "classes": "SplitError split_classes spread_classes",
    "dataset": "Arrays Dataset FileStatus",
    "datasets": "DATASETS find_dataset",
    "description": "DataDescription Normaliser StreamError",
    "holdout": "Subset check_share hold_out set_apart",
    "image_files": "ENDINGS ImageReader Listing list_classes",
    "loading": "load_benchmark",
    "originals": "DataError Progress",
    "own": "arrays from_dataset image_folder",
    "reading": "Data read",
    "registry": "BENCHMARKS BenchmarkInfo check_name",
    "samples": "Samples batch_sizes epoch_batches",
    "task": "Task TaskData benchmark_tasks labels_in union_task",
    "texts": "TextFile TextReader",
    "user_arrays": "ArrayReader",
    "user_samples": "InputFormat Labels SKIP_UNREADABLE SampleReader Skipped Unreadable "
    "UnreadableImageWarning checked_name class_name class_names in_order sample_bytes",
}

__all__ = [
    "BENCHMARKS",
    "DATASETS",
    "ENDINGS",
    "SKIP_UNREADABLE",
    "ArrayReader",
    "Arrays",
    "Benchmark",
    "BenchmarkInfo",
    "Data",
    "DataDescription",
    "DataError",
    "Dataset",
    "FileStatus",
    "ImageReader",
    "InputFormat",
    "Labels",
    "Listing",
    "Normaliser",
    "Progress",
    "SampleReader",
    "Samples",
    "Skipped",
    "SplitError",
    "StreamError",
    "Subset",
    "Task",
    "TaskData",
    "TextFile",
    "TextReader",
    "Unreadable",
    "UnreadableImageWarning",
    "arrays",
    "batch_sizes",
    "benchmark_tasks",
    "cache_folder",
    "check_name",
    "check_share",
    "checked_name",
    "class_name",
    "class_names",
    "data_folder",
    "epoch_batches",
    "fetch",
    "find_dataset",
    "from_dataset",
    "hold_out",
    "image_folder",
    "in_order",
    "is_complete",
    "labels_in",
    "list_classes",
    "load",
    "load_benchmark",
    "read",
    "resplit",
    "sample_bytes",
    "set_apart",
    "split_classes",
    "spread_classes",
    "union_task",
    "verify",
    "where",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _MODULES)
