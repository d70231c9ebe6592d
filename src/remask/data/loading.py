"""Loading benchmarks by name."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from remask.data.benchmark import Benchmark, resplit
from remask.data.cache import load
from remask.data.classes import split_classes
from remask.data.registry import BENCHMARKS, BenchmarkInfo, check_name
from remask.errors import RemaskError
from remask.files import AnyPath
from remask.own_code import OwnCodeError, failure_of, import_own


def load_benchmark(
    name: str,
    *,
    tasks: int | None = None,
    class_order: Sequence[int] | int | None = None,
    limit: int | None = None,
    data: AnyPath | None = None,
) -> Benchmark:
    """Load a benchmark by name, fetching its data if needed; `module:function` is your own.

    `tasks` is the number of tasks, of sizes as even as possible, larger ones first. `class_order`
    is the order of the classes, or a seed to draw it from. `limit` keeps the first train and test
    inputs of each class. `data` is a folder or archive with the data, which is copied to the cache.
    Labels stay as in the files. The benchmark has the name that it was loaded by.

    Raises UnknownNameError, SplitError for invalid tasks, DataError if the data is damaged or out
    of reach, and OwnCodeError.
    """
    check_name(name)
    benchmark = _load(BENCHMARKS[name], data) if name in BENCHMARKS else _own_benchmark(name)
    return resplit(benchmark, tasks=tasks, class_order=class_order, limit=limit)


def _load(info: BenchmarkInfo, data: AnyPath | None) -> Benchmark:
    arrays = load(info.dataset, data)
    return Benchmark(
        name=info.name,
        train_inputs=torch.from_numpy(arrays["train_images"]),
        train_labels=torch.from_numpy(arrays["train_labels"].astype(np.int64)),
        test_inputs=torch.from_numpy(arrays["test_images"]),
        test_labels=torch.from_numpy(arrays["test_labels"].astype(np.int64)),
        scale=info.scale,
        mean=info.mean_and_std[0],
        std=info.mean_and_std[1],
        crop_padding=4 if info.augment else 0,
        flip=info.augment,
        tasks=split_classes(len(info.dataset.class_names), info.num_tasks),
        class_names=info.dataset.class_names,
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
    # The name in a trial's config, not the one that the function set.
    return replace(benchmark, name=name, asked=())
