"""Benchmarks: which images, in which tasks, and where the data comes from."""

from remask.benchmarks.benchmark import Benchmark
from remask.benchmarks.files import DataError, DataFile, FileStatus
from remask.benchmarks.mirror import Progress
from remask.benchmarks.own import arrays, from_dataset, image_folder
from remask.benchmarks.own_images import UnreadableImageWarning
from remask.benchmarks.registry import (
    BENCHMARKS,
    DATASETS,
    BenchmarkInfo,
    check_name,
    find_dataset,
    load_benchmark,
)
from remask.benchmarks.sources import Dataset, fetch, verify, where
from remask.benchmarks.splitting import resplit
from remask.classes import SplitError, split_classes, spread_classes

__all__ = [
    "BENCHMARKS",
    "DATASETS",
    "Benchmark",
    "BenchmarkInfo",
    "DataError",
    "DataFile",
    "Dataset",
    "FileStatus",
    "Progress",
    "SplitError",
    "UnreadableImageWarning",
    "arrays",
    "check_name",
    "fetch",
    "find_dataset",
    "from_dataset",
    "image_folder",
    "load_benchmark",
    "resplit",
    "split_classes",
    "spread_classes",
    "verify",
    "where",
]
