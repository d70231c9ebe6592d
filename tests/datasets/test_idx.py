"""MNIST and Fashion-MNIST from folders that users and packages leave on the disk; IDX files."""

import gzip
import hashlib
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remask.benchmarks import BENCHMARKS, load_benchmark
from remask.datasets import DATASETS, DataError, DataFile, mnist, verify
from remask.datasets.local import LocalSource
from remask.datasets.mnist import map_idx
from tests.datasets.test_catalogue import use

DEBIAN = Path("/usr/share/datasets/fashion-mnist")


def write_idx(path: Path, array: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(header + array.tobytes())


def write_small_mnist(folder: Path) -> tuple[DataFile, ...]:
    """Write ten train and ten test images in the layout of MNIST."""
    images = np.arange(10 * 28 * 28, dtype=np.uint64).reshape(10, 28, 28).astype(np.uint8)
    for part in ("train", "t10k"):
        write_idx(folder / f"{part}-images-idx3-ubyte", images)
        write_idx(folder / f"{part}-labels-idx1-ubyte", np.arange(10, dtype=np.uint8))
    return tuple(
        DataFile(path.name, hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_size)
        for path in sorted(folder.iterdir())
    )


@pytest.fixture(params=["mnist", "fashion-mnist"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def raw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ten train and ten test images in idx files; both datasets take them for theirs."""
    monkeypatch.setenv("REMASK_DATA", str(tmp_path / "cache"))
    folder = tmp_path / "mine"
    folder.mkdir()
    files = write_small_mnist(folder)
    for dataset in (mnist.MNIST, mnist.FASHION_MNIST):
        use(replace(dataset, files=files, sources=()), monkeypatch)
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


def assert_loads(name: str, data: Path) -> None:
    benchmark = load_benchmark(f"split-{name}", data=data)
    assert benchmark.input_shape == (1, 28, 28)
    assert benchmark.train_labels.tolist() == list(range(10))
    assert benchmark.train_inputs[1, 0, 0, :3].tolist() == [16, 17, 18]  # 784 mod 256 = 16
    assert benchmark.tasks == ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))
    assert (benchmark.mean, benchmark.augment) == (None, False)


@pytest.mark.parametrize("dotted", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_idx_files_are_found_by_either_name_packed_or_not(
    raw: Path, tmp_path: Path, name: str, dotted: bool, packed: bool
) -> None:
    move(raw, tmp_path / "other", dotted=dotted, packed=packed)
    assert_loads(name, tmp_path / "other")


def test_the_folders_that_torchvision_makes_will_do(raw: Path, tmp_path: Path, name: str) -> None:
    root = tmp_path / "torchvision"
    move(raw, root / {"mnist": "MNIST", "fashion-mnist": "FashionMNIST"}[name] / "raw")
    assert_loads(name, root)
    # From now on it is in the cache.
    dataset = BENCHMARKS[f"split-{name}"].dataset
    assert [status.state for status in verify(dataset)] == ["ok"] * 4


def test_the_folder_of_the_other_dataset_is_not_taken(raw: Path, tmp_path: Path) -> None:
    move(raw, tmp_path / "torchvision" / "MNIST" / "raw")
    with pytest.raises(DataError, match=r"it holds none of train.*, the folder FashionMNIST/raw"):
        load_benchmark("split-fashion-mnist", data=tmp_path / "torchvision")


def test_wrong_contents_are_named_with_their_place(raw: Path, name: str) -> None:
    path = raw / "train-labels-idx1-ubyte"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(DataError, match=rf"^cannot take {name} from {raw}: {path.name}: .* found"):
        load_benchmark(f"split-{name}", data=raw)


def test_a_gz_cut_short_is_named(raw: Path, tmp_path: Path, name: str) -> None:
    move(raw, tmp_path / "other", packed=True)
    path = tmp_path / "other" / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DataError, match=rf"from {path.parent}: {path.stem} cannot be read"):
        load_benchmark(f"split-{name}", data=tmp_path / "other")


def test_a_file_instead_of_a_folder_is_answered_with_what_to_give(raw: Path, name: str) -> None:
    with pytest.raises(DataError, match=r"is a file; give the folder that holds"):
        load_benchmark(f"split-{name}", data=raw / "train-labels-idx1-ubyte")


def test_data_that_ships_with_the_package_takes_no_other(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="digits ships with remask"):
        load_benchmark("split-digits", data=tmp_path)


def test_the_files_of_the_debian_package_are_looked_for_before_the_web() -> None:
    first = DATASETS["fashion-mnist"].sources[0]
    assert isinstance(first, LocalSource)
    assert first.path == DEBIAN


@pytest.mark.data
@pytest.mark.skipif(not DEBIAN.is_dir(), reason="apt-get install dataset-fashion-mnist")
def test_the_debian_package_holds_the_real_fashion_mnist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMASK_DATA", str(tmp_path))
    benchmark = load_benchmark("split-fashion-mnist", data=DEBIAN)
    assert [len(benchmark.train_indices(task)) for task in range(5)] == [12_000] * 5
    assert [len(benchmark.test_indices(task)) for task in range(5)] == [2_000] * 5


# IDX


def header(*shape: int, kind: int = 8) -> bytes:
    return bytes([0, 0, kind, len(shape)]) + struct.pack(f">{len(shape)}I", *shape)


def test_an_idx_file_is_mapped_with_its_shape(tmp_path: Path) -> None:
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    write_idx(tmp_path / "a", array)
    np.testing.assert_array_equal(map_idx(tmp_path / "a", ndim=3), array)


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (b"", "header is cut short"),
        (header(2, 2)[:-1], "header is cut short"),
        (header(2, 2, kind=0x0D) + bytes(4), "begins with 00000d02, expected 00000802"),
        (header(1, 2, 2) + bytes(4), "begins with 00000803"),
        (header(2, 2) + bytes(3), "2 x 2 = 4 bytes of data, but holds 3"),
        (header(2, 2) + bytes(5), "but holds 5"),
        (header(0, 2), "0 x 2 = 0 bytes"),
        # Taken at its word, this header would ask for 16 exbibytes.
        (header(2**32 - 1, 2**32 - 1) + bytes(4), "but holds 4"),
    ],
)
def test_an_idx_file_that_contradicts_itself_is_refused(
    tmp_path: Path, contents: bytes, message: str
) -> None:
    (tmp_path / "a").write_bytes(contents)
    with pytest.raises(DataError, match=message):
        map_idx(tmp_path / "a", ndim=2)


def test_an_idx_file_that_is_not_there_is_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read"):
        map_idx(tmp_path / "a", ndim=2)
