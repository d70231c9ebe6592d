"""The benchmarks by name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from remask.benchmarks.benchmark import Benchmark
from remask.benchmarks.cifar import (
    CIFAR10,
    CIFAR100,
    load_split_cifar10,
    load_split_cifar100,
)
from remask.benchmarks.digits import DIGITS, load_split_digits
from remask.benchmarks.mnist import (
    FASHION_MNIST,
    MNIST,
    load_split_fashion_mnist,
    load_split_mnist,
)
from remask.benchmarks.sources import Dataset
from remask.benchmarks.splitting import resplit
from remask.benchmarks.tiny_imagenet import TINY_IMAGENET, load_split_tiny_imagenet
from remask.durable import AnyPath
from remask.errors import RemaskError
from remask.names import UnknownNameError, unknown
from remask.own_code import OwnCodeError, failure_of, import_own, names_own_code


@dataclass(frozen=True)
class BenchmarkInfo:
    """What there is to know about a benchmark before its data is loaded."""

    name: str
    summary: str
    load: Callable[[AnyPath | None], Benchmark]
    """Takes the folder or archive that the user has, or None."""
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
        BenchmarkInfo(
            name="split-fashion-mnist",
            summary="Fashion-MNIST, 70,000 clothes of 28 x 28 pixels, in 5 tasks of 2 classes",
            load=load_split_fashion_mnist,
            dataset=FASHION_MNIST,
        ),
        BenchmarkInfo(
            name="split-cifar10",
            summary="CIFAR-10, 60,000 colour images of 32 x 32 pixels, in 5 tasks of 2 classes",
            load=load_split_cifar10,
            dataset=CIFAR10,
        ),
        BenchmarkInfo(
            name="split-cifar100",
            summary="CIFAR-100, 60,000 colour images of 32 x 32 pixels, in 10 tasks of 10 classes",
            load=load_split_cifar100,
            dataset=CIFAR100,
        ),
        BenchmarkInfo(
            name="split-tiny-imagenet",
            summary="Tiny-ImageNet, 110,000 photos of 64 x 64 pixels, in 10 tasks of 20 classes",
            load=load_split_tiny_imagenet,
            dataset=TINY_IMAGENET,
        ),
    )
}

DATASETS: dict[str, Dataset] = {
    info.dataset.name: info.dataset for info in BENCHMARKS.values() if info.dataset is not None
}


def load_benchmark(
    name: str,
    *,
    tasks: int | None = None,
    class_order: Sequence[int] | int | None = None,
    limit: int | None = None,
    data: AnyPath | None = None,
) -> Benchmark:
    """Load a benchmark by name, fetching its data if need be; `module:function` is the user's own.

    `tasks` deals its classes to so many tasks, as evenly as possible, larger tasks first;
    `class_order` in the order given, or drawn from a seed. `limit` keeps the first so many train
    and test inputs of each class. `data` is a folder or an archive that has the data already; it
    is copied into the cache, unless it is there. Labels stay what they are in the files. The
    benchmark has the name that it was loaded by.

    Raises UnknownNameError for a name that is not in BENCHMARKS, SplitError for tasks that it
    cannot have, DataError when the data is damaged or out of reach, and OwnCodeError.
    """
    check_name(name)
    benchmark = BENCHMARKS[name].load(data) if name in BENCHMARKS else _own_benchmark(name)
    return resplit(benchmark, tasks=tasks, class_order=class_order, limit=limit)


def check_name(name: str) -> None:
    """Refuse a name that can be no benchmark, before anything is loaded or imported."""
    if name not in BENCHMARKS and not names_own_code(name):
        raise UnknownNameError(
            unknown("benchmark", name, BENCHMARKS) + "; or say module:function for one of your own"
        )


def _own_benchmark(name: str) -> Benchmark:
    make = import_own("benchmark", name)
    try:
        benchmark = make()
    except RemaskError:
        raise
    except Exception as error:
        raise failure_of(f"{name}()", error) from error
    if not isinstance(benchmark, Benchmark):
        raise OwnCodeError(f"{name}() must return a remask.Benchmark, not {benchmark!r:.100}")
    # What a trial's config says, whatever the function calls it and made it of.
    return replace(benchmark, name=name, asked=())


def find_dataset(name: str) -> Dataset:
    """Find a dataset by name. Raises UnknownNameError."""
    if name not in DATASETS:
        raise UnknownNameError(unknown("dataset", name, DATASETS))
    return DATASETS[name]
