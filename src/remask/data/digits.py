"""Digits: 1,797 handwritten digits of 8 x 8 pixels that ship with the package."""

import importlib.resources
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from remask.data.dataset import Arrays, Dataset, FileStatus, check_file

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
