"""The cache of prepared arrays: finished or not, damaged or not, one copy for all."""

import hashlib
import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from remask import durable
from remask.benchmarks import load_benchmark
from remask.datasets import DataError, fetch, verify
from remask.datasets.cache import load
from remask.datasets.files import SourceError
from tests.datasets.test_catalogue import (
    TARBALL,
    TOY,
    Unpacked,
    contents,
    toy_cache,
    toy_dataset,
    unpacked_toy,
)

__all__ = ["toy_cache", "unpacked_toy"]  # fixtures

ROOT = Path(__file__).parents[2]


def test_a_full_cache_asks_no_source_and_needs_no_data(unpacked: Path) -> None:
    load_benchmark("split-cifar10", data=unpacked)
    for path in unpacked.iterdir():
        path.unlink()
    assert len(load_benchmark("split-cifar10").train_labels) == 50
    assert len(load_benchmark("split-cifar10", data=unpacked).train_labels) == 50
    assert [status.state for status in verify(toy_dataset())] == ["ok"] * 4


def test_writing_to_loaded_images_leaves_the_cached_arrays_alone(
    unpacked: Path, cache: Path
) -> None:
    benchmark = load_benchmark("split-cifar10", data=unpacked)
    before = contents(cache)
    benchmark.train_inputs.zero_()
    assert contents(cache) == before
    assert load_benchmark("split-cifar10").train_inputs.any()


def test_the_arrays_are_mapped_rather_than_read(unpacked: Path) -> None:
    load_benchmark("split-cifar10", data=unpacked)
    dataset = toy_dataset()
    mapped = load(dataset)["train_images"]
    assert isinstance(mapped, np.memmap)
    assert torch.from_numpy(mapped).data_ptr() == mapped.ctypes.data


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_a_preparation_that_stops_before_its_manifest_never_counts_as_finished(
    unpacked: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, stop: BaseException
) -> None:
    write = durable.write_atomically

    def stopped(path: Path, data: object) -> None:
        if path.name == "manifest.json":
            raise durable.DurabilityError(stop) if isinstance(stop, OSError) else stop
        write(path, data)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(durable, "write_atomically", stopped)
        with pytest.raises((KeyboardInterrupt, DataError)):
            load_benchmark("split-cifar10", data=unpacked)
    assert [status.state for status in verify(toy_dataset())] == ["missing"]
    with pytest.raises(DataError, match="it has no sources"):
        load_benchmark("split-cifar10")
    assert len(load_benchmark("split-cifar10", data=unpacked).train_labels) == 50


def test_what_a_killed_preparation_left_is_not_used_and_is_cleared_away(
    unpacked: Path, cache: Path
) -> None:
    load_benchmark("split-cifar10", data=unpacked)
    (cache / "manifest.json").unlink()  # as if the process had been killed just before it
    left = contents(cache)
    assert [status.state for status in verify(toy_dataset())] == ["missing"]
    load_benchmark("split-cifar10", data=unpacked)
    assert len(contents(cache)) == 5
    assert not contents(cache).keys() & left.keys()


SLOW_PREPARATION = """
import sys, time
from pathlib import Path
from remask.datasets import fetch
from remask.datasets.originals import Folder
from tests.datasets.test_catalogue import Unpacked, toy_dataset

real_open = Folder.open
def slow_open(self, name, most):
    if name == "test_batch.bin":
        print("one array is written, one is begun", flush=True)
        time.sleep(60)
    return real_open(self, name, most)
Folder.open = slow_open
fetch(toy_dataset(Unpacked(Path(sys.argv[1]))))
"""


@pytest.mark.processes
def test_a_preparation_that_is_killed_leaves_no_data_and_no_remains(
    unpacked: Path, cache: Path
) -> None:
    command = [sys.executable, "-c", SLOW_PREPARATION, str(unpacked)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "one array is written, one is begun\n"
        process.kill()
    left = [path.name for path in cache.iterdir()]
    assert any(name.startswith("train_images.") for name in left)
    assert any(name.endswith(".tmp") for name in left)
    assert [status.state for status in verify(toy_dataset())] == ["missing"]
    fetch(toy_dataset(Unpacked(unpacked)))
    assert [status.state for status in verify(toy_dataset())] == ["ok"] * 4
    assert len(contents(cache)) == 5
    assert not set(left) - {".lock"} & contents(cache).keys()


def test_a_forced_preparation_that_fails_keeps_the_finished_one(
    unpacked: Path, cache: Path
) -> None:
    fetch(toy_dataset(Unpacked(unpacked)))
    before = contents(cache)
    broken = unpacked / "test_batch.bin"  # the last to be read
    broken.write_bytes(bytes(len(TOY.files["test_batch.bin"])))
    with pytest.raises(DataError, match=r"the test: test_batch\.bin: expected sha256"):
        fetch(toy_dataset(Unpacked(unpacked)), force=True)
    assert contents(cache) == before
    assert [status.state for status in verify(toy_dataset())] == ["ok"] * 4


def test_a_forced_preparation_takes_the_place_of_the_old_one(unpacked: Path, cache: Path) -> None:
    fetch(toy_dataset(Unpacked(unpacked)))
    damaged = next(cache.glob("train_images.*"))
    damaged.write_bytes(b"scratched")
    fetch(toy_dataset(Unpacked(unpacked)), force=True)
    assert not damaged.exists()
    assert len(contents(cache)) == 5
    assert [status.state for status in verify(toy_dataset())] == ["ok"] * 4


def test_a_damaged_array_is_reported_on_load_and_left_alone(unpacked: Path, cache: Path) -> None:
    load_benchmark("split-cifar10", data=unpacked)
    path = next(cache.glob("test_images.*"))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"is damaged(.|\n)*remask data fetch cifar10 --force"):
        load_benchmark("split-cifar10", data=unpacked)
    assert path.read_bytes() == data
    states = {status.path: status.state for status in verify(toy_dataset())}
    assert states[path] == "damaged"
    assert sorted(states.values()) == ["damaged", "ok", "ok", "ok"]


def test_verify_compares_the_arrays_with_the_published_checksums_of_the_files(
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
    assert [status.state for status in others] == ["ok"] * 4
    assert last.state == "damaged"
    published = hashlib.sha256(TOY.files["data_batch_5.bin"]).hexdigest()
    assert last.expected == f"data_batch_5.bin with sha256 {published}"


@pytest.mark.parametrize(
    "manifest",
    [
        "",
        "{",
        "[]",
        '{"format": 1, "dataset": "cifar10"}',
        '{"format": 1, "dataset": "cifar100", "arrays": {}}',
        '{"format": 2, "dataset": "cifar10", "arrays": {}}',
        "[" * 10_000,
        " " * 100_000,
    ],
)
def test_a_manifest_that_cannot_be_made_out_is_reported(
    unpacked: Path, cache: Path, manifest: str
) -> None:
    load_benchmark("split-cifar10", data=unpacked)
    (cache / "manifest.json").write_text(manifest)
    with pytest.raises(DataError, match=r"(?s)manifest\.json is damaged.*fetch cifar10 --force"):
        load_benchmark("split-cifar10")
    assert [status.state for status in verify(toy_dataset())] == ["damaged"]
    fetch(toy_dataset(Unpacked(unpacked)), force=True)
    assert [status.state for status in verify(toy_dataset())] == ["ok"] * 4


@pytest.mark.parametrize(
    ("field", "value"),
    [("file", "../../elsewhere.npy"), ("file", "/etc/hostname"), ("shape", [1, 3, 32, 32])],
)
def test_a_manifest_that_leads_elsewhere_is_refused(
    unpacked: Path, cache: Path, field: str, value: object
) -> None:
    load_benchmark("split-cifar10", data=unpacked)
    manifest = json.loads((cache / "manifest.json").read_text())
    manifest["arrays"]["train_images"][field] = value
    (cache / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match=r"(?s)manifest\.json is damaged.*no array of shape"):
        load_benchmark("split-cifar10")


def test_preparations_at_the_same_time_make_one_copy(unpacked: Path, cache: Path) -> None:
    source = Unpacked(unpacked)
    together = threading.Barrier(3, timeout=120)

    def prepare() -> Path:
        together.wait()
        return fetch(toy_dataset(source))

    with ThreadPoolExecutor(3) as pool:
        assert [done.result() for done in [pool.submit(prepare) for _ in range(3)]] == [cache] * 3
    assert source.asked == 1
    assert len(contents(cache)) == 5


def test_the_next_source_is_asked_when_one_fails_and_its_name_is_kept(
    unpacked: Path, cache: Path
) -> None:
    seen: list[tuple[str, int, int | None]] = []
    first = Unpacked(unpacked, SourceError("no network"))
    fetch(toy_dataset(first, Unpacked(unpacked)), progress=lambda *report: seen.append(report))
    assert first.asked == 1
    assert json.loads((cache / "manifest.json").read_text())["source"] == "the test"
    size = next(cache.glob("train_images.*")).stat().st_size
    assert ("cifar10 train_images", size, size) in seen


def test_when_no_source_works_the_error_says_what_was_tried_and_what_to_do(
    unpacked: Path, cache: Path
) -> None:
    with pytest.raises(DataError) as caught:
        fetch(toy_dataset(Unpacked(unpacked, SourceError("no network"))))
    message = str(caught.value)
    assert "the test: no network" in message
    assert f"md5 {hashlib.md5(TARBALL).hexdigest()}" in message
    assert "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz" in message
    assert "data=" in message
    assert f"into\n{cache}\n" in message


def test_a_cache_that_cannot_be_written_is_not_blamed_on_the_data(
    unpacked: Path, tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(DataError, match=r"cannot write to .*REMASK_DATA"):
        load_benchmark("split-cifar10", data=unpacked)


def test_an_archive_put_into_the_cache_by_hand_is_used_and_kept(
    unpacked: Path, cache: Path
) -> None:
    source = Unpacked(unpacked)
    cache.mkdir(parents=True)
    archive = cache / "cifar-10-binary.tar.gz"
    archive.write_bytes(TARBALL)
    fetch(toy_dataset(source))
    assert [status.state for status in verify(toy_dataset())] == ["ok"] * 4
    assert archive.read_bytes() == TARBALL
    assert source.asked == 0


def test_a_damaged_archive_put_into_the_cache_by_hand_is_named_and_kept(
    unpacked: Path, cache: Path
) -> None:
    source = Unpacked(unpacked)
    cache.mkdir(parents=True)
    archive = cache / "cifar-10-binary.tar.gz"
    archive.write_bytes(TARBALL[:-1])
    with pytest.raises(DataError, match=r"cifar-10-binary\.tar\.gz: expected .* found"):
        fetch(toy_dataset(source))
    assert contents(cache) == {archive.name: TARBALL[:-1]}
    assert source.asked == 0
