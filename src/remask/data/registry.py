"""The benchmarks by name: dataset, number of tasks, preprocessing."""

from dataclasses import dataclass

from remask.data.dataset import Dataset
from remask.data.datasets import DATASETS
from remask.errors import UnknownNameError, unknown
from remask.own_code import names_own_code


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

    @property
    def name(self) -> str:
        """`split-` and the name of the dataset."""
        return f"split-{self.dataset.name}"

    @property
    def summary(self) -> str:
        """One line for listings."""
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
