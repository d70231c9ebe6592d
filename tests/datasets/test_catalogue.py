"""CIFAR from what a user has on disk: folders, archives, and what is refused."""

import hashlib
import io
import tarfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from remask.benchmarks import BENCHMARKS, load_benchmark
from remask.datasets import DataError, Dataset, cifar, verify
from remask.datasets.cifar import Cifar, RecordFile
from remask.datasets.cifar_versions import PIXELS
from remask.datasets.files import Progress
from remask.datasets.local import Version
from remask.datasets.originals import Archive, Folder, Originals, Source

TOP = "cifar-10-batches-bin"
BATCH = 10


@dataclass(frozen=True)
class Toy:
    """CIFAR-10 with ten images per file: one of each class, in an order of the file's own."""

    files: dict[str, bytes]
    images: npt.NDArray[np.uint8]
    """Of the five train files, [50, 3, 32, 32]"""
    labels: npt.NDArray[np.uint8]
    """Of the five train files, [50]"""

    @property
    def tarball(self) -> bytes:
        return pack({f"{TOP}/{name}": contents for name, contents in self.files.items()})


def pack(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    # Reversed, since nothing says that an archive has its files in the order of their names.
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, contents in reversed(members.items()):
            info = tarfile.TarInfo(name)
            info.size = len(contents)
            tar.addfile(info, io.BytesIO(contents))
    return buffer.getvalue()


def make_toy() -> Toy:
    random = np.random.default_rng(0)
    names = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
    images = random.integers(0, 256, (len(names), BATCH, PIXELS), dtype=np.uint8)
    labels = np.stack([random.permutation(BATCH).astype(np.uint8) for _ in names])
    records = np.concatenate([labels[:, :, None], images], axis=2)
    return Toy(
        files={name: part.tobytes() for name, part in zip(names, records, strict=True)},
        images=images[:5].reshape(-1, 3, 32, 32),
        labels=labels[:5].reshape(-1),
    )


TOY = make_toy()
TARBALL = TOY.tarball


def toy_archive() -> Archive:
    archive = cifar.CIFAR10.versions[0].archive
    assert archive is not None
    size = sum(map(len, TOY.files.values()))
    md5 = hashlib.md5(TARBALL).hexdigest()
    return replace(archive, md5=md5, size=len(TARBALL), unpacked_size=size)


def toy_dataset(*sources: Source) -> Cifar:
    files = [
        RecordFile(name, BATCH, hashlib.sha256(contents).hexdigest())
        for name, contents in TOY.files.items()
    ]
    versions = (Version("data_batch_1.bin", toy_archive()), *cifar.CIFAR10.versions[1:])
    return replace(
        cifar.CIFAR10,
        train=tuple(files[:5]),
        test=tuple(files[5:]),
        sources=sources,
        versions=versions,
    )


def use(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this what the benchmark is loaded from."""
    name = f"split-{dataset.name}"
    monkeypatch.setitem(BENCHMARKS, name, replace(BENCHMARKS[name], dataset=dataset))


@pytest.fixture(autouse=True, name="cache")
def toy_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the toy in a cache of its own; no source is asked for anything."""
    monkeypatch.setenv("REMASK_DATA", str(tmp_path / "cache"))
    use(toy_dataset(), monkeypatch)
    return tmp_path / "cache" / "cifar10"


@pytest.fixture(name="unpacked")
def unpacked_toy(tmp_path: Path) -> Path:
    """The folder that the archive unpacks to."""
    folder = tmp_path / "mine" / TOP
    folder.mkdir(parents=True)
    for name, contents in TOY.files.items():
        (folder / name).write_bytes(contents)
    return folder


def contents(cache: Path) -> dict[str, bytes]:
    """The files of the cache beside the lock and the stamps."""
    own = (".lock", ".verified.json")
    return {path.name: path.read_bytes() for path in cache.iterdir() if path.name not in own}


class Unpacked:
    """A source that works, or breaks off, or waits, as the test says."""

    def __init__(self, folder: Path, failure: BaseException | None = None) -> None:
        self.folder, self.failure = folder, failure
        self.asked = 0

    def __str__(self) -> str:
        return "the test"

    @contextmanager
    def originals(self, folder: Path, progress: Progress) -> Iterator[Originals]:
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        yield Originals(Folder((self.folder,)).open)


# What a user has


def test_split_cifar10_has_the_pixels_and_labels_of_the_binary_files(unpacked: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns when it is given a read-only array
        benchmark = load_benchmark("split-cifar10", data=unpacked)
    np.testing.assert_array_equal(benchmark.train_inputs, TOY.images)
    np.testing.assert_array_equal(benchmark.train_labels, TOY.labels)
    test = TOY.files["test_batch.bin"]
    assert bytes(benchmark.test_inputs[1].numpy().tobytes()) == test[3074 : 2 * 3073]
    assert int(benchmark.test_labels[1]) == test[3073]
    assert benchmark.tasks == ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))
    assert 255 * benchmark.scale == pytest.approx(1)


@pytest.mark.parametrize("given", ["folder", "around", "archive", "around-archive"])
def test_a_folder_or_the_archive_or_what_is_around_them_will_do(
    unpacked: Path, tmp_path: Path, given: str
) -> None:
    archive = tmp_path / "downloads" / "cifar-10-binary.tar.gz"
    archive.parent.mkdir()
    archive.write_bytes(TARBALL)
    place = {
        "folder": unpacked,
        "around": unpacked.parent,
        "archive": archive,
        "around-archive": archive.parent,
    }[given]
    benchmark = load_benchmark("split-cifar10", data=place)
    np.testing.assert_array_equal(benchmark.train_inputs, TOY.images)
    np.testing.assert_array_equal(benchmark.train_labels, TOY.labels)


def test_split_cifar100_goes_by_the_fine_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    fine = np.random.default_rng(1).permutation(100).astype(np.uint8)
    pixels = np.random.default_rng(2).integers(0, 256, (100, PIXELS), dtype=np.uint8)
    records = np.concatenate([np.full((100, 1), 19, np.uint8), fine[:, None], pixels], axis=1)
    checksum = hashlib.md5(records.tobytes()).hexdigest()
    for name in ("train.bin", "test.bin"):
        (folder / name).write_bytes(records.tobytes())
    dataset = replace(
        cifar.CIFAR100,
        train=(RecordFile("train.bin", 100, checksum),),
        test=(RecordFile("test.bin", 100, checksum),),
        sources=(),
    )
    use(dataset, monkeypatch)
    benchmark = load_benchmark("split-cifar100", data=tmp_path)
    np.testing.assert_array_equal(benchmark.train_labels, fine)
    np.testing.assert_array_equal(benchmark.train_inputs.flatten(1), pixels)
    assert benchmark.tasks[1] == tuple(range(10, 20))
    assert [len(task) for task in benchmark.tasks] == [10] * 10
    assert [status.state for status in verify(dataset)] == ["ok"] * 4


def test_a_folder_unpacked_into_the_cache_by_hand_is_used(unpacked: Path, cache: Path) -> None:
    cache.mkdir(parents=True)
    unpacked.rename(cache / unpacked.name)
    np.testing.assert_array_equal(load_benchmark("split-cifar10").train_inputs, TOY.images)


def test_the_binary_version_beside_the_one_in_pickle_is_taken(unpacked: Path) -> None:
    (unpacked.parent / "cifar-10-batches-py").mkdir()
    (unpacked.parent / "cifar-10-batches-py" / "data_batch_1").write_bytes(b"never read")
    assert len(load_benchmark("split-cifar10", data=unpacked.parent).train_labels) == 50


def test_a_place_that_does_not_exist_is_an_error_even_with_a_full_cache(
    unpacked: Path, tmp_path: Path
) -> None:
    load_benchmark("split-cifar10", data=unpacked)
    with pytest.raises(DataError, match=r"there is no .*/nowhere to take cifar10 from"):
        load_benchmark("split-cifar10", data=tmp_path / "nowhere")


def test_a_place_without_the_data_is_an_error_and_nothing_is_downloaded(
    unpacked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Unpacked(unpacked)
    use(toy_dataset(source), monkeypatch)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match=rf"none of data_batch_1\.bin, the folder {TOP}, cifar"):
        load_benchmark("split-cifar10", data=empty)
    assert source.asked == 0


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("data_batch_3.bin", lambda data: data[:-1] + b"?", r"data_batch_3\.bin: expected sha256"),
        ("data_batch_5.bin", lambda data: data[:-1], "expected 30730 bytes, found 30729"),
        ("test_batch.bin", lambda data: data + b"\0", "30731 bytes, where at most 30730"),
        ("data_batch_1.bin", lambda data: b"\x0a" + data[1:], r"a label 10, expected 0\.\.9"),
    ],
    ids=["altered", "cut", "long", "label"],
)
def test_a_wrong_file_is_named_and_leaves_the_cache_as_it_was(
    unpacked: Path, cache: Path, name: str, change: object, reason: str
) -> None:
    assert callable(change)
    (unpacked / name).write_bytes(change(TOY.files[name]))
    with pytest.raises(DataError, match=reason):
        load_benchmark("split-cifar10", data=unpacked)
    assert contents(cache) == {}


def test_a_missing_file_is_named(unpacked: Path) -> None:
    (unpacked / "data_batch_4.bin").unlink()
    with pytest.raises(DataError, match=r"there is no data_batch_4\.bin"):
        load_benchmark("split-cifar10", data=unpacked)


@pytest.mark.parametrize(
    "body", [TARBALL[:-100], TARBALL[:-1] + b"?", b""], ids=["cut", "changed", "empty"]
)
def test_an_archive_that_is_not_the_published_one_is_refused(
    tmp_path: Path, cache: Path, body: bytes
) -> None:
    archive = tmp_path / "cifar-10-binary.tar.gz"
    archive.write_bytes(body)
    found = hashlib.md5(body).hexdigest()
    with pytest.raises(DataError, match=f"found {len(body)} bytes, md5 {found}"):
        load_benchmark("split-cifar10", data=archive)
    assert contents(cache) == {}


def test_the_real_cifar100_has_sixty_thousand_images() -> None:
    shapes = cifar.CIFAR100.shapes()
    assert shapes["train_images"] == (50_000, 3, 32, 32)
    assert shapes["test_labels"] == (10_000, 2)
