"""The benchmarks by name."""

from collections.abc import Callable
from dataclasses import dataclass

from remask.benchmarks.benchmark import Benchmark
from remask.benchmarks.digits import DIGITS, load_split_digits
from remask.benchmarks.mnist import MNIST, load_split_mnist
from remask.benchmarks.sources import Dataset
from remask.names import UnknownNameError, unknown


@dataclass(frozen=True)
class BenchmarkInfo:
    """What there is to know about a benchmark before its data is loaded."""

    name: str
    summary: str
    load: Callable[[], Benchmark]
    dataset: Dataset | None
    """What `remask data` fetches and verifies for it; None if it needs no files."""


BENCHMARKS: dict[str, BenchmarkInfo] = {
    info.name: info
    for info in (
        BenchmarkInfo(
            name="split-digits",
            summary="1,797 digits of 8 x 8 pixels in 5 tasks of 2 classes; ships with remask",
            load=load_split_digits,
            dataset=DIGITS,
        ),
        BenchmarkInfo(
            name="split-mnist",
            summary="MNIST, 70,000 digits of 28 x 28 pixels, in 5 tasks of 2 classes",
            load=load_split_mnist,
            dataset=MNIST,
        ),
    )
}

DATASETS: dict[str, Dataset] = {
    info.dataset.name: info.dataset for info in BENCHMARKS.values() if info.dataset is not None
}


def load_benchmark(name: str) -> Benchmark:
    """Load a benchmark by name, fetching its data if need be.

    Raises UnknownNameError for a name that is not in BENCHMARKS, and DataError when the data
    is damaged or out of reach.
    """
    if name not in BENCHMARKS:
        raise UnknownNameError(unknown("benchmark", name, BENCHMARKS))
    return BENCHMARKS[name].load()


def find_dataset(name: str) -> Dataset:
    """Find a dataset by name. Raises UnknownNameError."""
    if name not in DATASETS:
        raise UnknownNameError(unknown("dataset", name, DATASETS))
    return DATASETS[name]
