"""The benchmarks by name: a dataset, its number of tasks, and what is done to its images."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from remask.benchmarks.benchmark import Benchmark
from remask.benchmarks.splitting import resplit
from remask.classes import split_classes
from remask.datasets import DATASETS, Dataset, load
from remask.durable import AnyPath
from remask.errors import RemaskError
from remask.names import UnknownNameError, unknown
from remask.own_code import OwnCodeError, failure_of, import_own, names_own_code


@dataclass(frozen=True)
class BenchmarkInfo:
    """What there is to know about a benchmark before its data is loaded."""

    dataset: Dataset
    num_tasks: int
    """Of equal size, their classes in the order of their labels."""
    scale: float = 1 / 255
    mean_and_std: tuple[tuple[float, ...] | None, tuple[float, ...] | None] = (None, None)
    """Per channel, after scaling; None: inputs are only scaled."""
    augment: bool = False
    """Whether train images are padded by 4 pixels and cropped at random, and flipped."""

    @property
    def name(self) -> str:
        """The name of its dataset, and that it is split."""
        return f"split-{self.dataset.name}"

    @property
    def summary(self) -> str:
        """What it is, in a line for people."""
        size = len(self.dataset.class_names) // self.num_tasks
        return f"{self.dataset.summary}, in {self.num_tasks} tasks of {size} classes"

    def load(self, data: AnyPath | None = None) -> Benchmark:
        """Load it, fetching its data if need be; `data` is a folder or archive that has it."""
        arrays = load(self.dataset, data)
        return Benchmark(
            name=self.name,
            train_inputs=torch.from_numpy(arrays["train_images"]),
            train_labels=torch.from_numpy(arrays["train_labels"].astype(np.int64)),
            test_inputs=torch.from_numpy(arrays["test_images"]),
            test_labels=torch.from_numpy(arrays["test_labels"].astype(np.int64)),
            scale=self.scale,
            mean=self.mean_and_std[0],
            std=self.mean_and_std[1],
            crop_padding=4 if self.augment else 0,
            flip=self.augment,
            tasks=split_classes(len(self.dataset.class_names), self.num_tasks),
            class_names=self.dataset.class_names,
        )


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
    # The name that a trial's config has, not the one that the function gave.
    return replace(benchmark, name=name, asked=())
