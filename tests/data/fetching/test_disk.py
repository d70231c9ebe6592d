"""Datasets from users' folders and archives."""

import gzip
import hashlib
import io
import sys
import zipfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remask.data.benchmark import load_benchmark
from remask.data.dataset import Dataset, fetch
from remask.data.published import idx_files
from remask.data.registry import DATASETS
from remask.errors import DataError
from tests.data.fetching.test_published import PICKLES
from tests.data.fetching.toy import (
    CIFAR10,
    TARBALL,
    TOP,
    TOY,
    contents,
    pack,
    small,
    states,
    toy_dataset,
    toy_source,
    use,
)

DEBIAN = Path("/usr/share/datasets/fashion-mnist")
PICKLES_TOP = "cifar-10-batches-py"
PICKLES_TARBALL = pack({f"{PICKLES_TOP}/{name}": data for name, data in PICKLES.items()})


def md5(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


def with_pickles(files: dict[str, bytes] = PICKLES, images: int = 10) -> Dataset:
    """The toy, with these files as its Python version."""
    source = replace(
        small(CIFAR10.sources[2], images),
        url="/nowhere/cifar-10-python.tar.gz",
        checksum=md5(PICKLES_TARBALL),
        size=len(PICKLES_TARBALL),
        checksums={name: md5(data) for name, data in files.items()},
    )
    return toy_dataset(toy_source(), source)


def unpack(folder: Path, files: dict[str, bytes] = PICKLES) -> Path:
    (folder / PICKLES_TOP).mkdir(parents=True)
    for name, data in files.items():
        (folder / PICKLES_TOP / name).write_bytes(data)
    return folder / PICKLES_TOP


@pytest.mark.filterwarnings("error")  # torch warns of read-only arrays
@pytest.mark.parametrize("version", ["binary", "python"])
@pytest.mark.parametrize(
    "given", ["folder", "around", "archive", "renamed", "around archive", "cache"]
)
def test_the_folder_or_the_archive_or_the_folder_around_them_is_read(
    unpacked: Path,
    tmp_path: Path,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    given: str,
) -> None:
    dataset = with_pickles()
    use(dataset, monkeypatch)
    is_binary = version == "binary"
    folder = unpacked if is_binary else unpack(tmp_path / "torchvision")
    if given == "cache":
        cache.mkdir(parents=True)
        folder = folder.rename(cache / folder.name)
    archive = tmp_path / "downloads" / f"cifar-10-{version}.tar.gz"
    if given == "renamed":
        archive = archive.with_name(f"cifar-10-{version} (1).tar.gz")
    archive.parent.mkdir()
    archive.write_bytes(TARBALL if is_binary else PICKLES_TARBALL)
    place = {
        "folder": folder,
        "around": folder.parent,
        "around archive": archive.parent,
        "cache": None,
    }.get(given, archive)
    benchmark = load_benchmark("split-cifar10", data=place)
    np.testing.assert_array_equal(benchmark.train_inputs, TOY.images)
    np.testing.assert_array_equal(benchmark.train_labels, TOY.labels)
    assert states(dataset) == ["ok"] * 4


@pytest.mark.parametrize("given", ["archive", "folder"])
def test_a_zip_and_its_folder_are_read(tmp_path: Path, cache: Path, given: str) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in TOY.files.items():
            packed.writestr(f"{TOP}/{name}", data)
        packed.writestr(f"{TOP}/readme.html", "never read")
    data = buffer.getvalue()
    (tmp_path / "toy.zip").write_bytes(data)
    if given == "folder":
        zipfile.ZipFile(buffer).extractall(tmp_path)
        (tmp_path / "toy.zip").unlink()
    source = replace(toy_source("/nowhere/toy.zip"), checksum=md5(data), size=len(data))
    fetch(toy_dataset(source), data=tmp_path)
    assert states(toy_dataset()) == ["ok"] * 4


def test_the_binary_version_is_preferred_to_the_pickles(unpacked: Path) -> None:
    unpack(unpacked.parent, {"data_batch_1": b"never read"})
    assert len(load_benchmark("split-cifar10", data=unpacked.parent).train_labels) == 50


def test_a_missing_path_is_an_error_even_with_a_full_cache(unpacked: Path, tmp_path: Path) -> None:
    load_benchmark("split-cifar10", data=unpacked)
    with pytest.raises(DataError, match=r"cannot take cifar10 from .*/nowhere: No such file"):
        load_benchmark("split-cifar10", data=tmp_path / "nowhere")


def test_a_folder_without_the_data_is_an_error_and_nothing_is_downloaded(
    unpacked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(toy_dataset(toy_source(), toy_source(str(unpacked))), monkeypatch)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match=rf"none of data_batch_1\.bin, the folder {TOP}, cifar"):
        load_benchmark("split-cifar10", data=empty)


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("data_batch_3.bin", lambda data: data[:-1] + b"?", "train_images: expected sha256"),
        ("data_batch_5.bin", lambda data: data[:-1], "expected 30730 bytes, found 30729"),
        ("test_batch.bin", lambda data: data + b"\0", "has more than 30730 bytes"),
        ("data_batch_4.bin", None, r"neither data_batch_4\.bin nor data_batch_4\.bin\.gz is in"),
    ],
    ids=["altered", "cut", "long", "missing"],
)
def test_a_wrong_file_is_named_and_leaves_no_data(
    unpacked: Path, cache: Path, name: str, change: Any, reason: str
) -> None:
    if change is None:
        (unpacked / name).unlink()
    else:
        (unpacked / name).write_bytes(change(TOY.files[name]))
    with pytest.raises(DataError, match=reason):
        load_benchmark("split-cifar10", data=unpacked)
    assert contents(cache) == {}


@pytest.mark.parametrize("data", [b"", PICKLES["data_batch_2"]])
def test_a_pickle_with_another_checksum_is_not_read(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    use(with_pickles(), monkeypatch)
    expected = md5(PICKLES["data_batch_3"])
    reason = rf"from .*: data_batch_3: expected md5 {expected}, found {md5(data)}"
    with pytest.raises(DataError, match=reason):
        load_benchmark("split-cifar10", data=unpack(tmp_path, PICKLES | {"data_batch_3": data}))
    assert contents(cache) == {}


def test_without_pillow_nothing_is_prepared_from_photographs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    (tmp_path / "wnids.txt").touch()
    with pytest.raises(DataError, match=r"needs Pillow.*pip install pillow"):
        load_benchmark("split-tiny-imagenet", data=tmp_path)


# MNIST


@pytest.fixture
def raw(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Ten train and ten test images in IDX files, as both datasets."""
    for name in ("mnist", "fashion-mnist"):
        source = DATASETS[name].sources[1]
        source = replace(source, url="/nowhere", read=partial(idx_files, train=10, test=10))
        use(replace(DATASETS[name], sources=(source,), checksums=()), monkeypatch)
    bodies = bytes(range(16)) + bytes(10 * 28 * 28), bytes(8) + bytes(range(10))
    names = ("images-idx3-ubyte", "labels-idx1-ubyte")
    return {
        f"{part}-{name}": body
        for part in ("train", "t10k")
        for name, body in zip(names, bodies, strict=True)
    }


def place(files: dict[str, bytes], folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, body in files.items():
        (folder / name).write_bytes(body)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize("form", ["plain", "dotted", "packed", "torchvision"])
def test_idx_files_are_found_by_either_name_compressed_or_not(
    raw: dict[str, bytes], tmp_path: Path, name: str, form: str
) -> None:
    files = raw
    if form == "dotted":
        files = {name.replace("-idx", ".idx"): body for name, body in raw.items()}
    if form == "packed":
        files = {f"{name}.gz": gzip.compress(body) for name, body in raw.items()}
    inner = {"mnist": "MNIST/raw", "fashion-mnist": "FashionMNIST/raw"}[name]
    place(files, tmp_path / "mine" / (inner if form == "torchvision" else ""))
    benchmark = load_benchmark(f"split-{name}", data=tmp_path / "mine")
    assert benchmark.input_shape == (1, 28, 28)
    assert benchmark.train_labels.tolist() == list(range(10))
    assert not benchmark.train_inputs.any()  # the header is left out
    assert benchmark.tasks == ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))


def test_another_folder_or_a_single_file_is_refused(raw: dict[str, bytes], tmp_path: Path) -> None:
    place(raw, tmp_path / "mine" / "MNIST" / "raw")
    with pytest.raises(DataError, match=r"it holds none of train.*, the folder FashionMNIST/raw"):
        load_benchmark("split-fashion-mnist", data=tmp_path / "mine")
    with pytest.raises(DataError, match=r"is a file; give the folder that holds train-images"):
        load_benchmark("split-mnist", data=tmp_path / "mine/MNIST/raw/t10k-labels-idx1-ubyte")
    with pytest.raises(DataError, match=r"put\n  train-images-idx3-ubyte or train-images-idx3.*gz"):
        load_benchmark("split-fashion-mnist")


# Real data


@pytest.mark.data
@pytest.mark.skipif(not DEBIAN.is_dir(), reason="apt-get install dataset-fashion-mnist")
def test_debian_has_the_real_fashion_mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert DATASETS["fashion-mnist"].sources[0].url == str(DEBIAN)
    monkeypatch.setenv("REMASK_DATA", str(tmp_path))
    benchmark = load_benchmark("split-fashion-mnist", data=DEBIAN)
    assert [len(benchmark.train_indices(task)) for task in range(5)] == [12_000] * 5
    assert [len(benchmark.test_indices(task)) for task in range(5)] == [2_000] * 5
