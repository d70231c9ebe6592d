"""Custom benchmarks: a function that takes nothing and returns a `remask.Benchmark`."""

from dataclasses import replace

import torch
from torch.utils.data import Dataset, TensorDataset

from remask import Benchmark
from remask.data import arrays, from_dataset, image_folder


def photos() -> Benchmark:
    """A folder of images, photos/CLASS/NAME.png, in two tasks of unequal size."""
    benchmark = image_folder(
        "photos", tasks=[["ant", "bee"], ["cat"]], size=16, test=0.25, name="photos"
    )
    # Normalised, and in training cropped and mirrored at random.
    return replace(
        benchmark, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25), crop_padding=2, flip=True
    )


def measurements() -> Benchmark:
    """Arrays `inputs` [N, ...] and `labels` [N] from a .npz file, in three equal tasks."""
    return arrays("measurements.npz", tasks=3, name="measurements")


def noise() -> Benchmark:
    """Any torch Dataset of (input, label); here one that is made up, of four classes."""
    labels = torch.arange(200) % 4
    random = torch.Generator().manual_seed(0)  # every worker calls this, and must see the same
    inputs = torch.randn(200, 36, generator=random) + labels.view(-1, 1)
    dataset: Dataset[tuple[torch.Tensor, ...]] = TensorDataset(inputs, labels)
    return from_dataset(dataset, tasks=2, name="noise")
