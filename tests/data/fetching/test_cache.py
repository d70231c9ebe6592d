"""The cache of prepared arrays: complete or not, damaged or not, verified once."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from remask import files
from remask.data.benchmark import load_benchmark
from remask.data.dataset import FileStatus, fetch, is_complete, load, verify, where
from remask.data.downloads import SourceError
from remask.data.registry import DATASETS
from remask.errors import DataError
from tests.data.fetching.toy import TARBALL, TOY, Unpacked, assert_complete, contents, toy_dataset

ROOT = Path(__file__).parents[3]


def states(statuses: list[FileStatus]) -> list[str]:
    return [status.state for status in statuses]


def test_the_cache_is_remask_data_then_xdg_then_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("REMASK_DATA", str(tmp_path / "data"))
    assert where(toy_dataset()) == tmp_path / "data" / "cifar10"
    monkeypatch.setenv("REMASK_DATA", "")
    assert where(toy_dataset()) == tmp_path / "xdg" / "remask" / "cifar10"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert where(toy_dataset()) == tmp_path / "home" / ".cache" / "remask" / "cifar10"


def test_data_that_ships_with_the_package_is_never_fetched(tmp_path: Path) -> None:
    digits = DATASETS["digits"]
    assert fetch(digits, force=True) == where(digits)
    assert states(verify(digits)) == ["ok"]
    assert not (tmp_path / "cache").exists()
    with pytest.raises(DataError, match="digits ships with remask"):
        load_benchmark("split-digits", data=tmp_path)


def test_the_arrays_are_mapped_and_writing_to_them_does_not_change_the_files(
    unpacked: Path, cache: Path
) -> None:
    mapped = load(toy_dataset(), unpacked)["train_images"]
    before = contents(cache)
    assert isinstance(mapped, np.memmap)
    assert torch.from_numpy(mapped).data_ptr() == mapped.ctypes.data
    mapped[:] = 0
    assert contents(cache) == before
    assert load(toy_dataset())["train_images"].any()


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_a_preparation_that_stops_before_its_manifest_does_not_count(
    unpacked: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, stop: BaseException
) -> None:
    write = files.write_atomically

    def stopped(path: Path, data: object) -> None:
        if path.name == "manifest.json":
            raise files.DurabilityError(stop) if isinstance(stop, OSError) else stop
        write(path, data)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_atomically", stopped)
        with pytest.raises((KeyboardInterrupt, DataError)):
            load_benchmark("split-cifar10", data=unpacked)
    assert states(verify(toy_dataset())) == ["missing"]
    with pytest.raises(DataError, match="no sources"):
        load_benchmark("split-cifar10")
    assert len(load_benchmark("split-cifar10", data=unpacked).train_labels) == 50


SLOW_PREPARATION = """
import sys, time
from pathlib import Path
from remask.data import sources
from remask.data.dataset import fetch
from tests.data.fetching.toy import Unpacked, toy_dataset

read_file = sources._read_file
def slow(places, name, most):
    if name == "test_batch.bin":
        print("two arrays are written", flush=True)
        time.sleep(60)
    return read_file(places, name, most)
sources._read_file = slow
fetch(toy_dataset(Unpacked(Path(sys.argv[1]))))
"""


@pytest.mark.processes
def test_a_killed_preparation_leaves_no_data_and_is_cleaned_up(unpacked: Path, cache: Path) -> None:
    command = [sys.executable, "-c", SLOW_PREPARATION, str(unpacked)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "two arrays are written\n"
        process.kill()
    left = [path.name for path in cache.iterdir()]
    assert any(name.startswith("train_images.") for name in left)
    assert states(verify(toy_dataset())) == ["missing"]
    fetch(toy_dataset(Unpacked(unpacked)))
    assert_complete(cache)
    assert not (set(left) - {".lock"}) & contents(cache).keys()


def test_a_forced_preparation_replaces_the_old_one_only_if_it_succeeds(
    unpacked: Path, cache: Path
) -> None:
    fetch(toy_dataset(Unpacked(unpacked)))
    before = contents(cache)
    test_batch = unpacked / "test_batch.bin"  # the last one to be read
    test_batch.write_bytes(bytes(len(TOY.files["test_batch.bin"])))
    with pytest.raises(DataError, match=r"the test: test_batch\.bin: expected sha256"):
        fetch(toy_dataset(Unpacked(unpacked)), force=True)
    assert contents(cache) == before
    test_batch.write_bytes(TOY.files["test_batch.bin"])
    damaged = next(cache.glob("train_images.*"))
    damaged.write_bytes(b"scratched")
    fetch(toy_dataset(Unpacked(unpacked)), force=True)
    assert not damaged.exists()
    assert_complete(cache)


def test_verify_compares_the_arrays_with_the_published_checksums(
    unpacked: Path, cache: Path
) -> None:
    load_benchmark("split-cifar10", data=unpacked)
    path = next(cache.glob("train_labels.*"))
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))  # the last label of data_batch_5.bin
    manifest = json.loads((cache / "manifest.json").read_text())
    manifest["arrays"]["train_labels"]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (cache / "manifest.json").write_text(json.dumps(manifest))
    *others, last = verify(toy_dataset())
    assert states(others) == ["ok"] * 4
    assert last.state == "damaged"
    published = hashlib.sha256(TOY.files["data_batch_5.bin"]).hexdigest()
    assert last.expected == f"data_batch_5.bin with sha256 {published}"


@pytest.mark.parametrize(
    "manifest",
    [
        "",
        "[]",
        '{"format": 1, "dataset": "cifar10"}',
        '{"format": 2, "dataset": "cifar10", "arrays": {}}',
        "[" * 10_000,
        " " * 100_000,
    ],
)
def test_a_damaged_manifest_is_reported(unpacked: Path, cache: Path, manifest: str) -> None:
    load_benchmark("split-cifar10", data=unpacked)
    (cache / "manifest.json").write_text(manifest)
    with pytest.raises(DataError, match=r"(?s)manifest\.json is damaged.*fetch cifar10 --force"):
        load_benchmark("split-cifar10")
    assert states(verify(toy_dataset())) == ["damaged"]
    fetch(toy_dataset(Unpacked(unpacked)), force=True)
    assert states(verify(toy_dataset())) == ["ok"] * 4


@pytest.mark.parametrize("file", ["../../elsewhere.npy", "/etc/hostname"])
def test_a_manifest_that_leads_elsewhere_is_refused(unpacked: Path, cache: Path, file: str) -> None:
    load_benchmark("split-cifar10", data=unpacked)
    manifest = json.loads((cache / "manifest.json").read_text())
    manifest["arrays"]["train_images"]["file"] = file
    (cache / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match=r"(?s)is damaged.*is not the name of an array"):
        load_benchmark("split-cifar10")


def test_the_manifest_names_the_source_that_worked(unpacked: Path, cache: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    first = Unpacked(unpacked, SourceError("no network"))
    fetch(toy_dataset(first, Unpacked(unpacked)), progress=lambda *report: seen.append(report))
    assert first.asked == 1
    assert json.loads((cache / "manifest.json").read_text())["source"] == "the test"
    size = next(cache.glob("train_images.*")).stat().st_size
    assert ("cifar10 train_images", size, size) in seen


def test_a_cache_that_cannot_be_written_is_not_blamed_on_the_data(
    unpacked: Path, tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(DataError, match=r"cannot write to .*REMASK_DATA"):
        load_benchmark("split-cifar10", data=unpacked)


@pytest.mark.parametrize("body", [TARBALL, TARBALL[:-1]], ids=["whole", "damaged"])
def test_an_archive_in_the_cache_is_used_or_reported_and_kept(
    unpacked: Path, cache: Path, body: bytes
) -> None:
    source = Unpacked(unpacked)
    cache.mkdir(parents=True)
    archive = cache / "cifar-10-binary.tar.gz"
    archive.write_bytes(body)
    if body == TARBALL:
        fetch(toy_dataset(source))
        assert states(verify(toy_dataset())) == ["ok"] * 4
    else:
        with pytest.raises(DataError, match=r"cifar-10-binary\.tar\.gz: expected .* found"):
            fetch(toy_dataset(source))
        assert contents(cache).keys() == {archive.name}
    assert archive.read_bytes() == body
    assert source.asked == 0


# Stamps: a file is hashed once per version.


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The arrays that are hashed from now on."""
    names: list[str] = []
    file_digest = hashlib.file_digest

    def digest(stream: Any, name: str) -> Any:
        names.append(Path(stream.name).name.partition(".")[0])
        return file_digest(stream, name)

    monkeypatch.setattr(hashlib, "file_digest", digest)
    return names


def test_an_array_is_hashed_once_and_by_verify_always(unpacked: Path, hashed: list[str]) -> None:
    fetch(toy_dataset(), data=unpacked)
    for _ in range(3):
        fetch(toy_dataset())
        assert is_complete(toy_dataset())
    assert len(hashed) == 4
    verify(toy_dataset())
    assert len(hashed) == 8
    fetch(toy_dataset())
    assert len(hashed) == 8


def spoilt(path: Path) -> bytes:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    return bytes(data)


def overwrite(path: Path) -> None:
    path.write_bytes(spoilt(path))


def overwrite_and_set_the_time_back(path: Path) -> None:
    before = path.stat()
    path.write_bytes(spoilt(path))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace_and_set_the_time_back(path: Path) -> None:
    before = path.stat()
    other = path.with_name("other")
    other.write_bytes(spoilt(path))
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(path)


@pytest.mark.parametrize(
    "change", [overwrite, overwrite_and_set_the_time_back, replace_and_set_the_time_back]
)
def test_a_changed_array_is_hashed_again_refused_and_left_alone(
    unpacked: Path, cache: Path, hashed: list[str], change: Callable[[Path], None]
) -> None:
    fetch(toy_dataset(), data=unpacked)
    assert is_complete(toy_dataset())
    hashed.clear()
    path = next(cache.glob("test_images.*"))
    change(path)
    data = path.read_bytes()
    for _ in range(2):
        with pytest.raises(DataError, match=r"is damaged(.|\n)*data fetch cifar10 --force"):
            fetch(toy_dataset(), data=unpacked)
    assert hashed == ["test_images"] * 2
    assert path.read_bytes() == data
    damaged = [status.path for status in verify(toy_dataset()) if status.state == "damaged"]
    assert damaged == [path]


@pytest.mark.parametrize("stamps", ["", "[]", "null", "[" * 9_999, " " * 99_999, None])
def test_damaged_stamps_are_ignored(
    unpacked: Path, cache: Path, hashed: list[str], stamps: str | None
) -> None:
    fetch(toy_dataset(), data=unpacked)
    fetch(toy_dataset())
    path = cache / ".verified.json"
    whole = path.read_text()
    path.unlink()
    if stamps is None:
        path.mkdir()  # stamps cannot be written
    else:
        path.write_text(stamps)
    hashed.clear()
    for _ in range(2):
        fetch(toy_dataset())
    assert len(hashed) == (8 if stamps is None else 4)
    if stamps is not None:
        assert path.read_text() == whole


def test_stamps_of_another_user_are_ignored(
    unpacked: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch(toy_dataset(), data=unpacked)
    fetch(toy_dataset())
    hashed.clear()
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    fetch(toy_dataset())
    assert len(hashed) == 4
