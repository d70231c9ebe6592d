"""CIFAR in its Python version, as torchvision keeps it: folders and archives of pickles."""

import hashlib
import os
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remask.benchmarks import load_benchmark
from remask.datasets import DataError, Dataset, cifar, fetch, verify, where
from remask.datasets.cifar import RecordFile
from remask.datasets.cifar_versions import PIXELS, PickledFile, PickledFiles
from remask.datasets.local import Version
from remask.datasets.originals import Archive
from tests.datasets.python2_pickles import pickled
from tests.datasets.test_catalogue import BATCH, TOY, contents, pack, toy_dataset, use
from tests.payload import Payload

pytestmark = pytest.mark.usefixtures("nothing_is_executed")

TOP = "cifar-10-batches-py"
REAL, REAL_CACHE = cifar.CIFAR10, os.environ.get("REMASK_DATA")


def batch(records: bytes, **changes: Any) -> bytes:
    """A file of the Python version with the images of a file of the binary version."""
    rows = np.frombuffer(records, np.uint8).reshape(-1, 1 + PIXELS)
    values = {
        "batch_label": b"training batch 1 of 5",
        "labels": rows[:, 0].tolist(),
        "data": rows[:, 1:],
        "filenames": [b"toy_s_%06d.png" % number for number in range(len(rows))],
    }
    return pickled({key.encode(): value for key, value in (values | changes).items()})


FILES = {name.removesuffix(".bin"): batch(records) for name, records in TOY.files.items()}
TARBALL = pack({f"{TOP}/{name}": data for name, data in FILES.items()})


def md5(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


def dataset(files: dict[str, bytes] = FILES, tarball: bytes = TARBALL) -> Dataset:
    """The toy, which may be had in the Python version: these files, this archive."""
    toy = toy_dataset()
    size = sum(map(len, files.values()))
    archive = Archive("https://toy/cifar-10-python.tar.gz", md5(tarball), len(tarball), TOP, size)
    pickles = PickledFiles(
        {f"{name}.bin": PickledFile(name, BATCH, md5(data)) for name, data in files.items()},
        labels=("labels",),
        same_records=True,
    )
    version = Version("data_batch_1", archive, rebuilt=pickles.rebuilt)
    return replace(toy, versions=(toy.versions[0], version))


def unpack(folder: Path, files: dict[str, bytes] = FILES) -> Path:
    """The folder that the archive unpacks to."""
    (folder / TOP).mkdir(parents=True)
    for name, data in files.items():
        (folder / TOP / name).write_bytes(data)
    return folder / TOP


@pytest.fixture(autouse=True, name="cache")
def toy_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the toy in a cache of its own; no source is asked for anything."""
    monkeypatch.setenv("REMASK_DATA", str(tmp_path / "cache"))
    use(dataset(), monkeypatch)
    return tmp_path / "cache" / "cifar10"


@pytest.mark.parametrize(
    "given", ["folder", "around", "archive", "renamed archive", "around archive", "cache"]
)
def test_the_folder_or_the_archive_or_what_is_around_them_gives_the_binary_version_s_images(
    tmp_path: Path, cache: Path, given: str
) -> None:
    folder = unpack(cache if given == "cache" else tmp_path / "torchvision")
    (tmp_path / "downloads").mkdir()
    archive = tmp_path / "downloads" / "cifar-10-python.tar.gz"
    if given == "renamed archive":
        archive = archive.with_name("cifar-10-python (1).tar.gz")
    archive.write_bytes(TARBALL)
    place = {
        "folder": folder,
        "around": folder.parent,
        "archive": archive,
        "renamed archive": archive,
        "around archive": archive.parent,
        "cache": None,
    }[given]
    benchmark = load_benchmark("split-cifar10", data=place)
    np.testing.assert_array_equal(benchmark.train_inputs, TOY.images)
    np.testing.assert_array_equal(benchmark.train_labels, TOY.labels)
    assert [status.state for status in verify(dataset())] == ["ok"] * 4


def test_cifar100_has_coarse_and_fine_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(1)
    fine, coarse = random.permutation(100), random.integers(0, 20, 100)
    pixels = random.integers(0, 256, (100, PIXELS), dtype=np.uint8)
    names = [b"a"] * 100
    data = pickled(
        {
            b"filenames": names,
            b"batch_label": b"training batch 1 of 1",
            b"fine_labels": fine.tolist(),
            b"coarse_labels": coarse.tolist(),
            b"data": pixels,
        }
    )
    for name in ("train", "test"):
        (tmp_path / name).write_bytes(data)
    binary, version = cifar.CIFAR100.versions
    pickles = PickledFiles(
        {f"{name}.bin": PickledFile(name, 100, md5(data)) for name in ("train", "test")},
        labels=("coarse_labels", "fine_labels"),
        same_records=False,
    )
    unknown = [(RecordFile(f"{name}.bin", 100, "not known"),) for name in ("train", "test")]
    dataset = replace(
        cifar.CIFAR100,
        train=unknown[0],
        test=unknown[1],
        sources=(),
        versions=(binary, replace(version, rebuilt=pickles.rebuilt)),
    )
    use(dataset, monkeypatch)
    benchmark = load_benchmark("split-cifar100", data=str(tmp_path))
    np.testing.assert_array_equal(benchmark.train_labels, fine)
    np.testing.assert_array_equal(benchmark.train_inputs.flatten(1), pixels)


PAYLOAD = pickle.dumps(Payload(), 2)
RECORDS = TOY.files["data_batch_3.bin"]
WRONG = np.frombuffer(RECORDS, np.uint8).reshape(-1, 1 + PIXELS)[:, 1:] ^ 1
DAMAGES = {
    "payload": PAYLOAD,
    "payload after the pickle": FILES["data_batch_3"] + PAYLOAD,
    "payload as labels": FILES["data_batch_3"].replace(b"}q\x02(", b"}q\x02(" + PAYLOAD[2:-1], 1),
    "nothing": b"",
    "cut": FILES["data_batch_3"][:-1],
    "long": FILES["data_batch_3"] + bytes(100_000),
    "other pixels": batch(RECORDS, data=WRONG),
    "pixels of another shape": batch(RECORDS, data=WRONG.reshape(-1, PIXELS // 2)),
    "no pixels": batch(RECORDS, data=[]),
    "pixels as text": batch(RECORDS, data=b"a"),
    "a label too few": batch(RECORDS, labels=[1] * 9),
    "a label that is none": batch(RECORDS, labels=[10] * 10),
    "a label that is large": batch(RECORDS, labels=[256] * 10),
    "a label that is negative": batch(RECORDS, labels=[-1] * 10),
    "labels as text": batch(RECORDS, labels=b"0123456789"),
    "labels that are text": batch(RECORDS, labels=[b"1"] * 10),
    "labels in lists": batch(RECORDS, labels=[[1]] * 10),
}


@pytest.mark.parametrize("data", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("checksum", ["right", "wrong"])
def test_a_file_that_is_not_the_published_one_is_refused_and_never_run(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, checksum: str
) -> None:
    files = FILES | {"data_batch_3": data}
    if checksum == "right":  # its maker knew how to make it so
        use(dataset(files), monkeypatch)
    with pytest.raises(DataError, match=r"cannot take cifar10 from .*: data_batch_3") as caught:
        load_benchmark("split-cifar10", data=unpack(tmp_path, files))
    if checksum == "wrong" and len(data) < 50_000:
        assert f"expected md5 {md5(FILES['data_batch_3'])}, found {md5(data)}" in str(caught.value)
    assert "Replace what is wrong, or leave it out" in str(caught.value)
    assert contents(cache) == {}


def test_an_archive_that_is_not_the_published_one_is_refused(tmp_path: Path, cache: Path) -> None:
    archive = tmp_path / "cifar-10-python.tar.gz"
    archive.write_bytes(pack({f"{TOP}/data_batch_1": PAYLOAD}))
    with pytest.raises(DataError, match=rf"cifar-10-python\.tar\.gz: expected .*{md5(TARBALL)}"):
        load_benchmark("split-cifar10", data=archive)
    assert contents(cache) == {}


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    folder = unpack(tmp_path)
    (folder / "test_batch").unlink()
    with pytest.raises(DataError, match="there is no test_batch"):
        load_benchmark("split-cifar10", data=folder)


@pytest.mark.data
def test_the_real_cifar10_in_python_files_has_the_checksums_of_the_binary_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(REAL, monkeypatch)
    if REAL_CACHE is None:
        monkeypatch.delenv("REMASK_DATA")
    else:
        monkeypatch.setenv("REMASK_DATA", REAL_CACHE)
    known = load_benchmark("split-cifar10")
    images = np.concatenate([known.train_inputs.flatten(1), known.test_inputs.flatten(1)])
    labels = np.concatenate([known.train_labels, known.test_labels]).astype(np.uint8)
    records = np.concatenate([labels[:, None], images], axis=1)
    names = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    files = {
        name: batch(part.tobytes()) for name, part in zip(names, np.split(records, 6), strict=True)
    }
    folder = unpack(tmp_path, files)
    pickles = PickledFiles(
        {f"{name}.bin": PickledFile(name, 10_000, md5(data)) for name, data in files.items()},
        labels=("labels",),
        same_records=True,
    )
    binary, python = REAL.versions
    versions = (binary, replace(python, rebuilt=pickles.rebuilt))
    copy = replace(REAL, sources=(), versions=versions)
    monkeypatch.setenv("REMASK_DATA", str(tmp_path / "cache"))
    fetch(copy, data=folder)
    assert [status.state for status in verify(copy)] == ["ok"] * 4
    assert where(copy).is_relative_to(tmp_path)
