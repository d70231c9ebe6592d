"""Datasets: where they come from, how they are checked and cached, and their arrays.

To add one, add a file to this package and an entry to DATASETS.
"""

from remask.datasets.cache import (
    cache_folder,
    data_folder,
    fetch,
    is_complete,
    load,
    verify,
    where,
)
from remask.datasets.cifar import CIFAR10, CIFAR100
from remask.datasets.dataset import Arrays, Dataset, FileStatus
from remask.datasets.digits import DIGITS
from remask.datasets.mnist import FASHION_MNIST, MNIST
from remask.datasets.originals import DataError, Progress
from remask.datasets.tiny_imagenet import TINY_IMAGENET
from remask.names import UnknownNameError, unknown

DATASETS: dict[str, Dataset] = {
    dataset.name: dataset
    for dataset in (DIGITS, MNIST, FASHION_MNIST, CIFAR10, CIFAR100, TINY_IMAGENET)
}


def find_dataset(name: str) -> Dataset:
    """Find a dataset by name. Raises UnknownNameError."""
    if name not in DATASETS:
        raise UnknownNameError(unknown("dataset", name, DATASETS))
    return DATASETS[name]


__all__ = [
    "DATASETS",
    "Arrays",
    "DataError",
    "Dataset",
    "FileStatus",
    "Progress",
    "cache_folder",
    "data_folder",
    "fetch",
    "find_dataset",
    "is_complete",
    "load",
    "verify",
    "where",
]
