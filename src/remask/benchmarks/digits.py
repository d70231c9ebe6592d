"""split-digits: 1,797 handwritten digits of 8 x 8 pixels that ship with the package."""

import importlib.resources
from pathlib import Path

import numpy as np
import torch

from remask.benchmarks.benchmark import Benchmark
from remask.benchmarks.files import DataFile
from remask.benchmarks.sources import Dataset, fetch, require_undamaged
from remask.durable import AnyPath
from remask.known_splits import KNOWN_SPLITS

DIGITS = Dataset(
    name="digits",
    files=(
        DataFile(
            name="digits.npz",
            sha256="b2dab7b501728c22e9119ad76740b2e17c77a231e42d1e592380d90886f1a05e",
            size=45394,
        ),
    ),
    packaged_in=Path(str(importlib.resources.files("remask.benchmarks") / "data")),
)

_TEST_EVERY = 5


def load_split_digits(data: AnyPath | None = None) -> Benchmark:
    """Load the digits in 5 tasks of 2 classes; inputs [N, 1, 8, 8], 0..16.

    Every fifth image of each class is for testing, so the split depends on the data alone.
    """
    fetch(DIGITS, data=data)  # refuses data from elsewhere
    path = require_undamaged(DIGITS) / "digits.npz"
    with np.load(path, allow_pickle=False) as arrays:
        images = torch.from_numpy(arrays["images"]).unsqueeze(1)
        labels = torch.from_numpy(arrays["labels"]).long()
    is_test = _every_nth_of_each_class(labels, _TEST_EVERY)
    return Benchmark(
        name="split-digits",
        train_inputs=images[~is_test],
        train_labels=labels[~is_test],
        test_inputs=images[is_test],
        test_labels=labels[is_test],
        scale=1 / 16,
        tasks=KNOWN_SPLITS["split-digits"].tasks,
        class_names=KNOWN_SPLITS["split-digits"].class_names,
    )


def _every_nth_of_each_class(labels: torch.Tensor, n: int) -> torch.Tensor:
    """Mark the n-th, 2n-th, ... row of each class; int64 [N] -> bool [N]."""
    chosen = torch.zeros(len(labels), dtype=torch.bool)
    for label in set(labels.tolist()):
        rows = (labels == label).nonzero().squeeze(-1)
        chosen[rows[n - 1 :: n]] = True
    return chosen
