"""The cache of prepared arrays: complete or not, damaged or not."""

import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from remask.data.benchmark import load_benchmark
from remask.data.dataset import Dataset, fetch, is_complete, load, where
from remask.data.registry import DATASETS
from remask.errors import DataError
from tests.data.fetching.toy import (
    NAME,
    TARBALL,
    TOY,
    assert_complete,
    contents,
    states,
    toy_dataset,
    toy_source,
)

ROOT = Path(__file__).parents[3]


def on_disk(folder: Path) -> Dataset:
    """The toy, from a folder."""
    return toy_dataset(toy_source(str(folder)))


def test_the_environment_names_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    before = contents(where(digits))
    assert fetch(digits, force=True) == where(digits)
    assert states(digits) == ["ok"] * 4
    assert contents(where(digits)) == before
    assert not (tmp_path / "cache").exists()
    with pytest.raises(DataError, match="digits ships with remask"):
        load_benchmark("split-digits", data=tmp_path)


def test_writing_to_mapped_arrays_changes_no_file(unpacked: Path, cache: Path) -> None:
    mapped = load(toy_dataset(), unpacked)["train_images"]
    before = contents(cache)
    assert isinstance(mapped, np.memmap)
    assert torch.from_numpy(mapped).data_ptr() == mapped.ctypes.data
    mapped[:] = 0
    assert contents(cache) == before
    assert load(toy_dataset())["train_images"].any()


SLOW_PREPARATION = """
import sys, time
from remask.data import published
from remask.data.dataset import fetch
from tests.data.fetching.toy import toy_dataset, toy_source

exactly = published._exactly
def slow(read, name, size):
    if name == "test_batch.bin":
        print("two arrays are written", flush=True)
        time.sleep(60)
    return exactly(read, name, size)
published._exactly = slow
fetch(toy_dataset(toy_source(sys.argv[1])))
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
    assert states(toy_dataset()) == ["missing"]
    fetch(on_disk(unpacked))
    assert_complete(cache)
    assert not (set(left) - {".lock"}) & contents(cache).keys()


def test_a_forced_preparation_replaces_data_if_it_succeeds(unpacked: Path, cache: Path) -> None:
    fetch(on_disk(unpacked))
    before = contents(cache)
    test_batch = unpacked / "test_batch.bin"  # the last one to be read
    test_batch.write_bytes(bytes(len(TOY.files["test_batch.bin"])))
    with pytest.raises(DataError, match=r"test_images: expected sha256"):
        fetch(on_disk(unpacked), force=True)
    assert contents(cache) == before
    test_batch.write_bytes(TOY.files["test_batch.bin"])
    damaged = next(cache.glob("train_images.*"))
    damaged.write_bytes(b"scratched")
    fetch(on_disk(unpacked), force=True)
    assert not damaged.exists()
    assert_complete(cache)


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
    assert states(toy_dataset()) == ["damaged"]
    fetch(on_disk(unpacked), force=True)
    assert states(toy_dataset()) == ["ok"] * 4


@pytest.mark.parametrize("file", ["../../elsewhere.npy", "/etc/hostname"])
def test_a_manifest_that_leads_elsewhere_is_refused(unpacked: Path, cache: Path, file: str) -> None:
    load_benchmark("split-cifar10", data=unpacked)
    manifest = json.loads((cache / "manifest.json").read_text())
    manifest["arrays"]["train_images"]["file"] = file
    (cache / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match=r"(?s)is damaged.*arrays.train_images.file"):
        load_benchmark("split-cifar10")


def test_a_cache_that_cannot_be_written_is_named(unpacked: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(DataError, match=r"cannot write to .*REMASK_DATA"):
        load_benchmark("split-cifar10", data=unpacked)


@pytest.mark.parametrize("body", [TARBALL, TARBALL[:-1]], ids=["whole", "damaged"])
def test_an_archive_in_the_cache_is_used_or_reported_and_kept(cache: Path, body: bytes) -> None:
    cache.mkdir(parents=True)
    archive = cache / NAME
    archive.write_bytes(body)
    if body == TARBALL:
        fetch(toy_dataset())
        assert states(toy_dataset()) == ["ok"] * 4
    else:
        with pytest.raises(DataError, match=r"cifar-10-binary\.tar\.gz: expected .* found"):
            fetch(toy_dataset())
        assert contents(cache).keys() == {archive.name}
    assert archive.read_bytes() == body


@pytest.mark.parametrize("published", [True, False])
def test_a_modified_array_is_refused_and_kept(unpacked: Path, cache: Path, published: bool) -> None:
    dataset = toy_dataset() if published else replace(toy_dataset(), checksums=())
    fetch(dataset, data=unpacked)
    path = next(cache.glob("test_images.*"))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert not is_complete(dataset)
    with pytest.raises(DataError, match=r"is damaged(.|\n)*data fetch cifar10 --force"):
        fetch(dataset, data=unpacked)
    assert path.read_bytes() == data


def test_a_forged_manifest_does_not_hide_a_changed_array(unpacked: Path, cache: Path) -> None:
    fetch(toy_dataset(), data=unpacked)
    path = next(cache.glob("train_labels.*"))
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    manifest = json.loads((cache / "manifest.json").read_text())
    manifest["arrays"]["train_labels"] |= {
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "time": path.stat().st_mtime_ns,
    }
    (cache / "manifest.json").write_text(json.dumps(manifest))
    assert states(toy_dataset()) == ["ok", "damaged", "ok", "ok"]
