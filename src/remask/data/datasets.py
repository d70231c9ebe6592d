"""The datasets that remask fetches. To add one, add a file to this package and an entry here."""

from remask.data.cifar import CIFAR10, CIFAR100
from remask.data.dataset import Dataset
from remask.data.digits import DIGITS
from remask.data.mnist import FASHION_MNIST, MNIST
from remask.data.tiny_imagenet import TINY_IMAGENET
from remask.errors import UnknownNameError, unknown

DATASETS: dict[str, Dataset] = {
    dataset.name: dataset
    for dataset in (DIGITS, MNIST, FASHION_MNIST, CIFAR10, CIFAR100, TINY_IMAGENET)
}


def find_dataset(name: str) -> Dataset:
    """Find a dataset by name. Raises UnknownNameError."""
    if name not in DATASETS:
        raise UnknownNameError(unknown("dataset", name, DATASETS))
    return DATASETS[name]
