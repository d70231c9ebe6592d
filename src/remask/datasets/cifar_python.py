"""CIFAR in its Python version, as torchvision keeps it, put back into the binary version's records.

The files are pickles. Each must have the checksum that it was published with, and is then read by
`remask.datasets.pickled`, which cannot run code whatever is in it. The records that come out of
CIFAR-10 are compared with the published checksums of the binary version, as all records are.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from remask.datasets.archives import Archive, Originals, read_small
from remask.datasets.files import WrongContentsError
from remask.datasets.local import Version
from remask.datasets.pickled import plain_data

_PIXELS = 3 * 32 * 32
# Beside its pixels, an image has labels and the name that its file once had.
_MOST_BYTES_BESIDE, _MOST_INSTRUCTIONS = 512, 16
_SLACK = 1 << 12


@dataclass(frozen=True)
class PickledFile:
    """A file of the Python version, known by its checksum."""

    name: str
    images: int
    md5: str


@dataclass(frozen=True)
class PickledFiles:
    """How to make each file of the binary version from one of the Python version."""

    files: Mapping[str, PickledFile]
    """By the name of the file of records that each stands for."""
    labels: tuple[str, ...]
    """What the labels of a record are called, in its order."""
    same_records: bool
    """Whether the records are known to be the binary version's, so that its checksums decide, too;
    if not, the checksums of the pickles must do."""

    def rebuilt(self, originals: Originals) -> Originals:
        """Offer the files of the binary version."""
        return _Rebuilt(self, originals)


class _Rebuilt:
    def __init__(self, pickled: PickledFiles, originals: Originals) -> None:
        self._pickled, self._originals = pickled, originals
        self.verified = not pickled.same_records

    def listing(self, folder: str) -> list[str]:
        return []

    def size(self, name: str) -> int:
        return self._pickled.files[name].images * (len(self._pickled.labels) + _PIXELS)

    def open(self, name: str) -> IO[bytes]:
        file = self._pickled.files[name]
        limit = file.images * (_PIXELS + _MOST_BYTES_BESIDE) + _SLACK
        data = read_small(self._originals, file.name, limit)
        found = hashlib.md5(data, usedforsecurity=False).hexdigest()
        if found != file.md5:
            raise WrongContentsError(f"{file.name}: expected md5 {file.md5}, found {found}")
        try:
            values = plain_data(data, file.images * _MOST_INSTRUCTIONS + _SLACK)
            labels = [_labels(values, key, file.images) for key in self._pickled.labels]
            pixels = _pixels(values, file.images)
        except WrongContentsError as error:
            raise WrongContentsError(f"{file.name}: {error}") from error
        return BytesIO(np.concatenate([*labels, pixels], axis=1).data)


def _labels(values: Mapping[str, Any], key: str, count: int) -> npt.NDArray[np.uint8]:
    labels = values.get(key)
    if (
        not isinstance(labels, list)
        or len(labels) != count
        or not all(isinstance(label, int) and 0 <= label < 256 for label in labels)
    ):
        raise WrongContentsError(f"its {key} are not {count} small numbers")
    return np.array(labels, dtype=np.uint8)[:, None]


def _pixels(values: Mapping[str, Any], count: int) -> npt.NDArray[np.uint8]:
    pixels = values.get("data")
    if not isinstance(pixels, np.ndarray) or pixels.shape != (count, _PIXELS):
        raise WrongContentsError(f"its data is not a matrix of {count} x {_PIXELS} bytes")
    return pixels


CIFAR10_PYTHON = Version(
    Archive(
        name="cifar-10-python.tar.gz",
        md5="c58f30108f718f92721af3b95e74349a",
        size=170_498_071,
        top="cifar-10-batches-py",
        unpacked_size=60_000 * _PIXELS,
    ),
    marker="data_batch_1",
    rebuilt=PickledFiles(
        files={
            f"{name}.bin": PickledFile(name, 10_000, md5)
            for name, md5 in (
                ("data_batch_1", "c99cafc152244af753f735de768cd75f"),
                ("data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"),
                ("data_batch_3", "54ebc095f3ab1f0389bbae665268c751"),
                ("data_batch_4", "634d18415352ddfa80567beed471001a"),
                ("data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"),
                ("test_batch", "40351d587109b95175f43aff81a1287e"),
            )
        },
        labels=("labels",),
        same_records=True,
    ).rebuilt,
)
CIFAR100_PYTHON = Version(
    Archive(
        name="cifar-100-python.tar.gz",
        md5="eb9058c3a382ffc7106e4002c42a8d85",
        size=169_001_437,
        top="cifar-100-python",
        unpacked_size=60_000 * _PIXELS,
    ),
    marker="train",
    rebuilt=PickledFiles(
        files={
            "train.bin": PickledFile("train", 50_000, "16019d7e3df5f24257cddd939b257f8d"),
            "test.bin": PickledFile("test", 10_000, "f0ef6b0ae62326f3e7ffdfab6717acfc"),
        },
        labels=("coarse_labels", "fine_labels"),
        same_records=False,  # nobody has compared them here
    ).rebuilt,
)
