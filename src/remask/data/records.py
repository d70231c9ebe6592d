"""Datasets published as files of records: MNIST and CIFAR.

A file is a header, then records of label bytes and pixels. A file of MNIST has either labels or
pixels; a record of CIFAR-100 has two labels. The arrays can be turned back into the files, so
`verify` compares them with the published checksums.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from remask.data.dataset import Arrays, PreparedDataset, Shape
from remask.data.originals import Originals, WrongContentsError, read_pieces

_RECORDS_AT_ONCE = 1000


@dataclass(frozen=True)
class RecordFile:
    """A file of records, identified by its checksum."""

    name: str
    records: int
    checksum: str
    """MD5 or SHA-256, by its length."""
    label_bytes: int = 1
    """Per record; the last one is the class."""
    has_pixels: bool = True
    header: bytes = b""

    @property
    def algorithm(self) -> str:
        """The algorithm of the checksum."""
        return "md5" if len(self.checksum) == 32 else "sha256"

    def digest(self, header: bytes) -> "hashlib._Hash":
        """Start a checksum of the file."""
        return hashlib.new(self.algorithm, header, usedforsecurity=False)


@dataclass(frozen=True, kw_only=True)
class RecordDataset(PreparedDataset):
    """Records in files for training and for testing."""

    train: tuple[RecordFile, ...]
    test: tuple[RecordFile, ...]
    image_shape: Shape

    def shapes(self) -> dict[str, Shape]:
        """Images [N, *image_shape]; labels [N, label_bytes]."""
        shapes: dict[str, Shape] = {}
        for part, files in self._parts():
            images = sum(file.records for file in files if file.has_pixels)
            shapes[f"{part}_images"] = (images, *self.image_shape)
            shapes[f"{part}_labels"] = (images, max(file.label_bytes for file in files))
        return shapes

    def arrays(self, originals: Originals) -> Iterator[tuple[str, Iterable[bytes]]]:
        """Split the records; reading the images of a part collects its labels."""
        for part, files in self._parts():
            labels: list[bytes] = []
            yield f"{part}_images", self._pixels(originals, files, labels)
            yield f"{part}_labels", labels

    def differences(self, arrays: Arrays) -> Iterator[tuple[str, str, str]]:
        """Rebuild the files and compare them with their checksums."""
        for part, files in self._parts():
            images = arrays[f"{part}_images"].reshape(-1, prod(self.image_shape))
            labels = arrays[f"{part}_labels"]
            image = label = 0
            for file in files:
                columns = []
                if file.label_bytes:
                    columns.append(labels[label : (label := label + file.records)])
                if file.has_pixels:
                    columns.append(images[image : (image := image + file.records)])
                digest = file.digest(file.header)
                digest.update(np.concatenate(columns, axis=1).data)
                if (found := digest.hexdigest()) != file.checksum:
                    expected = f"{file.name} with {file.algorithm} {file.checksum}"
                    array = f"{part}_images" if file.has_pixels else f"{part}_labels"
                    yield array, expected, f"{file.algorithm} {found}"

    def _parts(self) -> tuple[tuple[str, tuple[RecordFile, ...]], ...]:
        return ("train", self.train), ("test", self.test)

    def _pixels(
        self, originals: Originals, files: tuple[RecordFile, ...], labels: list[bytes]
    ) -> Iterator[bytes]:
        """Yield the pixels of all files, and append their labels to `labels`."""
        for file in files:
            record = file.label_bytes + prod(self.image_shape) * file.has_pixels
            size = len(file.header) + file.records * record
            pieces = read_pieces(
                originals, file.name, size, _RECORDS_AT_ONCE * record, len(file.header)
            )
            header = next(pieces) if file.header else b""
            digest = file.digest(header)
            for chunk in pieces:
                digest.update(chunk)
                records = np.frombuffer(chunk, np.uint8).reshape(-1, record)
                if file.label_bytes:
                    self._check_labels(file, records[:, file.label_bytes - 1])
                    labels.append(records[:, : file.label_bytes].tobytes())
                yield records[:, file.label_bytes :].tobytes()
            if not originals.verified and (found := digest.hexdigest()) != file.checksum:
                raise WrongContentsError(
                    f"{file.name}: expected {file.algorithm} {file.checksum}, found {found}"
                )

    def _check_labels(self, file: RecordFile, labels: npt.NDArray[np.uint8]) -> None:
        highest, most = int(labels.max()), len(self.class_names) - 1
        if highest > most:
            raise WrongContentsError(f"{file.name} has a label {highest}, expected 0..{most}")
