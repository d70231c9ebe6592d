"""The datasets and benchmarks by name.

To add a dataset, describe it in a module of this package, and add it to `DATASETS`.
"""

import importlib.resources
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from remask.data.cifar import CIFAR10, CIFAR100
from remask.data.dataset import Arrays, Dataset, FileStatus, check_file
from remask.data.records import FASHION_MNIST, MNIST
from remask.data.tiny_imagenet import TINY_IMAGENET
from remask.errors import UnknownNameError, unknown
from remask.own_code import names_own_code

_FILE = "digits.npz"
_SHA256 = "b2dab7b501728c22e9119ad76740b2e17c77a231e42d1e592380d90886f1a05e"
_SIZE = 45394
_TEST_EVERY = 5


@dataclass(frozen=True, kw_only=True)
class Digits(Dataset):
    """Images [N, 1, 8, 8], 0..16; every fifth of each class, in file order, is for testing."""

    def check(self, folder: Path, *, rehash: bool) -> list[FileStatus]:
        """Compare the file with its checksum."""
        return [check_file(folder / _FILE, _SHA256, _SIZE)]

    def read(self, folder: Path) -> Arrays:
        """Read the arrays."""
        with np.load(folder / _FILE, allow_pickle=False) as arrays:
            images, labels = arrays["images"][:, None], arrays["labels"]
        is_test = np.zeros(len(labels), dtype=bool)
        for label in np.unique(labels):
            is_test[np.flatnonzero(labels == label)[_TEST_EVERY - 1 :: _TEST_EVERY]] = True
        return {
            "train_images": images[~is_test],
            "train_labels": labels[~is_test],
            "test_images": images[is_test],
            "test_labels": labels[is_test],
        }


DIGITS = Digits(
    name="digits",
    summary="1,797 digits of 8 x 8 pixels that ship with remask",
    class_names=tuple("0123456789"),
    packaged_in=Path(str(importlib.resources.files("remask.data") / "files")),
)


DATASETS: dict[str, Dataset] = {
    dataset.name: dataset
    for dataset in (DIGITS, MNIST, FASHION_MNIST, CIFAR10, CIFAR100, TINY_IMAGENET)
}


def find_dataset(name: str) -> Dataset:
    """Find a dataset by name. Raises UnknownNameError."""
    if name not in DATASETS:
        raise UnknownNameError(unknown("dataset", name, DATASETS))
    return DATASETS[name]


@dataclass(frozen=True)
class BenchmarkInfo:
    """A benchmark before its data is loaded."""

    dataset: Dataset
    num_tasks: int
    """Of equal size, their classes in the order of their labels."""
    scale: float = 1 / 255
    mean_and_std: tuple[tuple[float, ...] | None, tuple[float, ...] | None] = (None, None)
    """Per channel, after scaling; None: inputs are only scaled."""
    augment: bool = False
    """Whether train images are padded by 4 pixels, cropped at random and flipped."""
    kind: str = "split"
    """`split`: each task has classes of its own; `permuted`, `rotated`: all tasks have all."""

    @property
    def name(self) -> str:
        """The kind and the name of the dataset."""
        return f"{self.kind}-{self.dataset.name}"

    @property
    def summary(self) -> str:
        """One line for listings."""
        if self.kind != "split":
            return f"{self.dataset.summary}, {self.kind} differently in {self.num_tasks} tasks"
        size = len(self.dataset.class_names) // self.num_tasks
        return f"{self.dataset.summary}, in {self.num_tasks} tasks of {size} classes"


_CIFAR10 = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2615))
_CIFAR100 = ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761))
_TINY_IMAGENET = ((0.4802, 0.4480, 0.3975), (0.2770, 0.2691, 0.2821))

BENCHMARKS: dict[str, BenchmarkInfo] = {
    info.name: info
    for info in (
        BenchmarkInfo(DATASETS["digits"], num_tasks=5, scale=1 / 16),
        BenchmarkInfo(DATASETS["mnist"], num_tasks=5),
        BenchmarkInfo(DATASETS["mnist"], num_tasks=20, kind="permuted"),
        BenchmarkInfo(DATASETS["mnist"], num_tasks=20, kind="rotated"),
        BenchmarkInfo(DATASETS["fashion-mnist"], num_tasks=5),
        BenchmarkInfo(DATASETS["cifar10"], num_tasks=5, mean_and_std=_CIFAR10, augment=True),
        BenchmarkInfo(DATASETS["cifar100"], num_tasks=10, mean_and_std=_CIFAR100, augment=True),
        BenchmarkInfo(
            DATASETS["tiny-imagenet"], num_tasks=10, mean_and_std=_TINY_IMAGENET, augment=True
        ),
    )
}


def check_name(name: str) -> None:
    """Raise UnknownNameError for an invalid name, before anything is loaded or imported."""
    if name not in BENCHMARKS and not names_own_code(name):
        raise UnknownNameError(
            unknown("benchmark", name, BENCHMARKS) + "; or module:function for one of your own"
        )
