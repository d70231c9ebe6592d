"""Benchmarks: which inputs, in which tasks; remask's own, and those made of your own data."""

from remask.benchmarks.benchmark import Benchmark
from remask.benchmarks.own import arrays, from_dataset, image_folder
from remask.benchmarks.own_images import UnreadableImageWarning
from remask.benchmarks.registry import BENCHMARKS, BenchmarkInfo, check_name, load_benchmark
from remask.benchmarks.splitting import resplit
from remask.classes import SplitError, split_classes, spread_classes
from remask.datasets import DataError

__all__ = [
    "BENCHMARKS",
    "Benchmark",
    "BenchmarkInfo",
    "DataError",
    "SplitError",
    "UnreadableImageWarning",
    "arrays",
    "check_name",
    "from_dataset",
    "image_folder",
    "load_benchmark",
    "resplit",
    "split_classes",
    "spread_classes",
]
