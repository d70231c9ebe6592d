"""Digits: 1,797 handwritten digits of 8 x 8 pixels that ship with the package."""

import importlib.resources
from pathlib import Path

import numpy as np
import numpy.typing as npt

from remask.datasets.dataset import Arrays, FileDataset
from remask.datasets.files import DataFile

_TEST_EVERY = 5


def _read(folder: Path) -> Arrays:
    """Images [N, 1, 8, 8], 0..16; every fifth of each class, in file order, is for testing."""
    with np.load(folder / "digits.npz", allow_pickle=False) as arrays:
        images, labels = arrays["images"][:, None], arrays["labels"]
    is_test = _every_nth_of_each_class(labels, _TEST_EVERY)
    return {
        "train_images": images[~is_test],
        "train_labels": labels[~is_test],
        "test_images": images[is_test],
        "test_labels": labels[is_test],
    }


def _every_nth_of_each_class(labels: npt.NDArray[np.uint8], n: int) -> npt.NDArray[np.bool_]:
    """Mark the n-th, 2n-th, ... row of each class; [N] -> bool [N]."""
    chosen = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        chosen[np.flatnonzero(labels == label)[n - 1 :: n]] = True
    return chosen


DIGITS = FileDataset(
    name="digits",
    summary="1,797 digits of 8 x 8 pixels that ship with remask",
    class_names=tuple("0123456789"),
    reader=_read,
    files=(
        DataFile(
            name="digits.npz",
            sha256="b2dab7b501728c22e9119ad76740b2e17c77a231e42d1e592380d90886f1a05e",
            size=45394,
        ),
    ),
    packaged_in=Path(str(importlib.resources.files("remask.datasets") / "data")),
)
