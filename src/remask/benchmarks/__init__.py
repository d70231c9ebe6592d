"""Benchmarks: which inputs, in which tasks; remask's own, and those made of your own data."""

from typing import TYPE_CHECKING

from remask.benchmarks.registry import BENCHMARKS, BenchmarkInfo, check_name
from remask.classes import SplitError, split_classes, spread_classes
from remask.datasets import DataError
from remask.lazy_names import lazy_names

if TYPE_CHECKING:
    from remask.benchmarks.benchmark import Benchmark, resplit
    from remask.benchmarks.loading import load_benchmark
    from remask.benchmarks.own import arrays, from_dataset, image_folder
    from remask.user_data import UnreadableImageWarning

_MODULES = {
    "benchmark": "Benchmark resplit",
    "loading": "load_benchmark",
    "own": "UnreadableImageWarning arrays from_dataset image_folder",
}
"""Where the names are that need torch; `remask benchmarks` needs none of them."""

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

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _MODULES)
