"""CIFAR from the user's disk: folders and archives, binary or pickled, and what is refused."""

import hashlib
import pickle
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remask.data.benchmark import load_benchmark
from remask.data.dataset import Dataset, fetch
from remask.data.published import PIXELS
from remask.data.registry import DATASETS
from remask.errors import DataError
from tests.data.fetching.python2_pickles import pickled
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
from tests.payload import Payload

pytestmark = pytest.mark.usefixtures("nothing_is_executed")
PICKLES_TOP = "cifar-10-batches-py"


def md5(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


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


PICKLES = {name.removesuffix(".bin"): batch(records) for name, records in TOY.files.items()}
PICKLES_TARBALL = pack({f"{PICKLES_TOP}/{name}": data for name, data in PICKLES.items()})


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


def test_split_cifar10_has_the_pixels_and_labels_of_the_binary_files(unpacked: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns of read-only arrays
        benchmark = load_benchmark("split-cifar10", data=unpacked)
    np.testing.assert_array_equal(benchmark.train_inputs, TOY.images)
    np.testing.assert_array_equal(benchmark.train_labels, TOY.labels)
    test = TOY.files["test_batch.bin"]
    assert bytes(benchmark.test_inputs[1].numpy().tobytes()) == test[3074 : 2 * 3073]
    assert int(benchmark.test_labels[1]) == test[3073]
    assert benchmark.tasks == ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))
    assert 255 * benchmark.scale == pytest.approx(1)


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
    binary = version == "binary"
    folder = unpacked if binary else unpack(tmp_path / "torchvision")
    if given == "cache":
        cache.mkdir(parents=True)
        folder = folder.rename(cache / folder.name)
    archive = tmp_path / "downloads" / f"cifar-10-{version}.tar.gz"
    if given == "renamed":
        archive = archive.with_name(f"cifar-10-{version} (1).tar.gz")
    archive.parent.mkdir()
    archive.write_bytes(TARBALL if binary else PICKLES_TARBALL)
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


def test_the_binary_version_is_preferred_to_the_pickles(unpacked: Path) -> None:
    unpack(unpacked.parent, {"data_batch_1": b"never read"})
    assert len(load_benchmark("split-cifar10", data=unpacked.parent).train_labels) == 50


@pytest.mark.parametrize("version", ["binary", "python"])
def test_split_cifar100_uses_the_fine_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    random = np.random.default_rng(1)
    fine = random.permutation(100).astype(np.uint8)
    coarse = random.integers(0, 20, 100, dtype=np.uint8)
    pixels = random.integers(0, 256, (100, PIXELS), dtype=np.uint8)
    records = np.concatenate([coarse[:, None], fine[:, None], pixels], axis=1).tobytes()
    pickle_file = pickled(
        {
            b"fine_labels": fine.tolist(),
            b"coarse_labels": coarse.tolist(),
            b"data": pixels,
        }
    )
    original = DATASETS["cifar100"].sources[version == "python"]
    data, ending = (records, ".bin") if version == "binary" else (pickle_file, "")
    names = (f"train{ending}", f"test{ending}")
    for name in names:
        (tmp_path / name).write_bytes(data)
    source = replace(
        small(original, 100),
        url="/nowhere/a.tar.gz",
        checksums=dict.fromkeys(names, md5(data)),
    )
    dataset = replace(DATASETS["cifar100"], sources=(source,))
    use(dataset, monkeypatch)
    benchmark = load_benchmark("split-cifar100", data=tmp_path)
    np.testing.assert_array_equal(benchmark.train_labels, fine)
    np.testing.assert_array_equal(benchmark.train_inputs.flatten(1), pixels)
    assert benchmark.tasks[1] == tuple(range(10, 20))
    (tmp_path / names[0]).write_bytes(data[:-1] + b"?")
    with pytest.raises(DataError, match=f"{names[0]}: expected md5"):
        fetch(dataset, data=tmp_path, force=True)
    assert states(dataset) == ["ok"] * 4


def test_a_path_that_does_not_exist_is_an_error_even_with_a_full_cache(
    unpacked: Path, tmp_path: Path
) -> None:
    load_benchmark("split-cifar10", data=unpacked)
    with pytest.raises(DataError, match=r"cannot take cifar10 from .*/nowhere: No such file"):
        load_benchmark("split-cifar10", data=tmp_path / "nowhere")


def test_a_folder_without_the_data_is_an_error_and_nothing_is_downloaded(
    unpacked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(toy_dataset(replace(toy_source(), url=str(unpacked))), monkeypatch)
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


@pytest.mark.parametrize("name", ["cifar-10-binary.tar.gz", "cifar-10-python.tar.gz"])
@pytest.mark.parametrize("body", [TARBALL[:-1] + b"?", b""], ids=["changed", "empty"])
def test_an_archive_that_is_not_the_published_one_is_refused(
    tmp_path: Path, cache: Path, name: str, body: bytes
) -> None:
    (tmp_path / name).write_bytes(body)
    with pytest.raises(DataError, match=f"found {len(body)} bytes, md5 {md5(body)}"):
        load_benchmark("split-cifar10", data=tmp_path / name)
    assert contents(cache) == {}


PAYLOAD = pickle.dumps(Payload(), 2)
RECORDS = TOY.files["data_batch_3.bin"]
THIRD = PICKLES["data_batch_3"]
WRONG = np.frombuffer(RECORDS, np.uint8).reshape(-1, 1 + PIXELS)[:, 1:] ^ 1
DAMAGES = {
    "payload": PAYLOAD,
    "payload as labels": THIRD.replace(b"}q\x02(", b"}q\x02(" + PAYLOAD[2:-1], 1),
    "nothing": b"",
    "cut": THIRD[:-1],
    "long": THIRD + bytes(100_000),
    "other pixels": batch(RECORDS, data=WRONG),
    "pixels of another shape": batch(RECORDS, data=WRONG.reshape(-1, PIXELS // 2)),
    "no pixels": batch(RECORDS, data=[]),
    "pixels as text": batch(RECORDS, data=b"a"),
    "a label too few": batch(RECORDS, labels=[1] * 9),
    "a label out of range": batch(RECORDS, labels=[10] * 10),
    "a large label": batch(RECORDS, labels=[256] * 10),
    "a negative label": batch(RECORDS, labels=[-1] * 10),
    "labels as text": batch(RECORDS, labels=b"0123456789"),
    "labels in lists": batch(RECORDS, labels=[[1]] * 10),
}


@pytest.mark.parametrize("data", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("checksum", ["right", "wrong"])
def test_a_pickle_that_is_not_the_published_one_is_refused_and_never_run(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, checksum: str
) -> None:
    files = PICKLES | {"data_batch_3": data}
    use(with_pickles(files if checksum == "right" else PICKLES), monkeypatch)
    reason = r"cannot take cifar10 from .*: (data_batch_3|train_\w+: expected sha256)"
    with pytest.raises(DataError, match=reason) as caught:
        load_benchmark("split-cifar10", data=unpack(tmp_path, files))
    if checksum == "wrong" and len(data) < 50_000:
        assert f"expected md5 {md5(THIRD)}, found {md5(data)}" in str(caught.value)
    assert contents(cache) == {}


@pytest.mark.data
def test_the_real_cifar10_in_pickles_has_the_same_checksums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = load_benchmark("split-cifar10")
    images = np.concatenate([known.train_inputs.flatten(1), known.test_inputs.flatten(1)])
    labels = np.concatenate([known.train_labels, known.test_labels]).astype(np.uint8)
    records = np.split(np.concatenate([labels[:, None], images], axis=1), 6)
    files = {name: batch(part.tobytes()) for name, part in zip(PICKLES, records, strict=True)}
    copy = replace(with_pickles(files, 10_000), checksums=CIFAR10.checksums)
    monkeypatch.setenv("REMASK_DATA", str(tmp_path / "cache"))
    fetch(copy, data=unpack(tmp_path, files))
    assert states(copy) == ["ok"] * 4
