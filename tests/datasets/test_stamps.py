"""Files are hashed once per version: stamps say which were, and never more than that."""

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remask.datasets import DataError, fetch, is_complete, verify
from tests.datasets.test_sources import CONTENTS, FILES, toy
from tests.datasets.test_sources import folder as toy_folder

__all__ = ["toy_folder"]  # a fixture

NAMES = sorted(CONTENTS)


@pytest.fixture(autouse=True, name="folder")
def filled(toy_folder: Path) -> Path:
    toy_folder.mkdir(parents=True)
    for name, contents in CONTENTS.items():
        (toy_folder / name).write_bytes(contents)
    return toy_folder


@pytest.fixture(autouse=True, name="hashed")
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are hashed from now on, which is done as ever."""
    names: list[str] = []
    file_digest = hashlib.file_digest

    def digest(stream: Any, name: str) -> Any:
        names.append(Path(stream.name).name)
        return file_digest(stream, name)

    monkeypatch.setattr(hashlib, "file_digest", digest)
    return names


def test_a_file_is_hashed_once(folder: Path, hashed: list[str]) -> None:
    fetch(toy())
    assert sorted(hashed) == NAMES
    for _ in range(3):
        fetch(toy())
        assert is_complete(toy())
    assert sorted(hashed) == NAMES


def test_verify_hashes_every_time(hashed: list[str]) -> None:
    for _ in range(2):
        verify(toy())
    assert sorted(hashed) == sorted(2 * NAMES)
    fetch(toy())  # by what `verify` has found
    assert len(hashed) == 4


def spoilt(path: Path) -> bytes:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    return bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def overwrite(path: Path) -> None:
    path.write_bytes(spoilt(path))


def overwrite_and_set_the_time_back(path: Path) -> None:
    before = path.stat()
    path.write_bytes(spoilt(path))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def replace_and_set_the_time_back(path: Path) -> None:
    before = path.stat()
    other = path.with_name("other")
    other.write_bytes(spoilt(path))
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(path)
    assert path.stat().st_ino != before.st_ino


@pytest.mark.parametrize(
    "change", [cut, overwrite, overwrite_and_set_the_time_back, replace_and_set_the_time_back]
)
def test_a_file_that_has_changed_is_hashed_again_and_refused(
    folder: Path, hashed: list[str], change: Callable[[Path], None]
) -> None:
    fetch(toy())
    hashed.clear()
    change(folder / "images")
    for _ in range(2):
        with pytest.raises(DataError, match=r"images is damaged(.|\n)*fetch toy --force"):
            fetch(toy())
    assert hashed == ["images"] * 2, "a file that is wrong gets no stamp, and the other keeps its"


@pytest.mark.parametrize("field", ["size", "mtime_ns", "ctime_ns", "inode", "sha256"])
def test_a_stamp_of_which_anything_differs_counts_for_nothing(
    folder: Path, hashed: list[str], field: str
) -> None:
    fetch(toy())
    hashed.clear()
    stamps = json.loads((folder / ".verified.json").read_text())
    stamps["images"][field] = "0" if field == "sha256" else stamps["images"][field] + 1
    (folder / ".verified.json").write_text(json.dumps(stamps))
    for _ in range(2):
        fetch(toy())
    assert hashed == ["images"], "hashed again once, and stamped anew"


@pytest.mark.parametrize(
    "stamps",
    ["", "{", "[]", "null", '{"images": 3}', '{"images": {"size": 0}}', "[" * 9_999, " " * 99_999],
)
def test_damaged_stamps_are_ignored_and_written_anew(
    folder: Path, hashed: list[str], stamps: str
) -> None:
    fetch(toy())
    whole = (folder / ".verified.json").read_text()
    (folder / ".verified.json").write_text(stamps)
    hashed.clear()
    fetch(toy())
    assert set(hashed) >= {"images"}
    assert (folder / ".verified.json").read_text() == whole


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="root gives files away")
def test_the_stamps_of_another_user_count_for_nothing(folder: Path, hashed: list[str]) -> None:
    fetch(toy())
    os.chown(folder / ".verified.json", 12345, 12345)
    hashed.clear()
    fetch(toy())
    assert sorted(hashed) == NAMES


def test_where_no_stamps_can_be_written_files_are_hashed_every_time(
    folder: Path, hashed: list[str]
) -> None:
    (folder / ".verified.json").mkdir()
    for _ in range(2):
        fetch(toy())
    assert sorted(hashed) == sorted(2 * NAMES)


def test_what_verify_finds_damaged_is_not_used_whatever_its_stamp_says(folder: Path) -> None:
    fetch(toy())
    path = folder / "images"
    path.write_bytes(spoilt(path))
    found, stamps = path.stat(), json.loads((folder / ".verified.json").read_text())
    stamps["images"] |= {
        "mtime_ns": found.st_mtime_ns, "ctime_ns": found.st_ctime_ns, "inode": found.st_ino
    }  # fmt: skip
    (folder / ".verified.json").write_text(json.dumps(stamps))
    fetch(toy())  # a stamp that was made to fit is believed, as the docs say
    assert [status.state for status in verify(toy())] == ["damaged", "ok"]
    with pytest.raises(DataError, match="images is damaged"):
        fetch(toy())


COUNTED = """
import hashlib, os, pathlib
import numpy as np, torch
from remask.benchmarks import Benchmark
from remask.datasets import DataFile, load
from remask.datasets.dataset import FileDataset

file_digest = hashlib.file_digest

def counted(stream, name):
    with open(os.environ["HASHES"], "a") as log:
        log.write(f"{pathlib.Path(stream.name).name} {os.getpid()}\\n")
    return file_digest(stream, name)

hashlib.file_digest = counted

def read(folder):
    with open(os.environ["HASHES"], "a") as log:
        log.write(f"loaded {os.getpid()}\\n")
    images = np.frombuffer((folder / "images").read_bytes(), np.uint8)[:4000].reshape(-1, 1, 2, 2)
    labels = np.arange(1000, dtype=np.uint8) % 4
    return {"train_images": images, "train_labels": labels, "test_images": images,
            "test_labels": labels}

def benchmark():
    files = tuple(DataFile(*described) for described in FILES)
    arrays = load(FileDataset(name="toy", summary="", class_names=(), files=files, reader=read))
    images, labels = (torch.from_numpy(arrays[f"train_{kind}"].copy()) for kind in
                      ("images", "labels"))
    return Benchmark("toy", images, labels.long(), images, labels.long(), ((0, 1), (2, 3)), 1 / 255)
"""


@pytest.mark.processes
def test_a_run_with_two_workers_hashes_each_file_once(tmp_path: Path) -> None:
    described = [(file.name, file.sha256, file.size) for file in FILES]
    (tmp_path / "counted.py").write_text(f"FILES = {described!r}\n{COUNTED}")
    log = tmp_path / "hashes"
    subprocess.run(
        [
            *(sys.executable, "-m", "remask", "run", "--benchmark", "counted:benchmark"),
            *("--method", "sgd", "--lr", "0.1", "--batch", "10", "--epochs", "1", "--trials", "4"),
            *("--stack", "1", "--workers", "2", "--store", str(tmp_path / "results.db")),
        ],
        cwd=tmp_path,
        env={**os.environ, "HASHES": str(log), "OMP_NUM_THREADS": "1"},
        check=True,
        timeout=300,
    )
    events = [line.split() for line in log.read_text().splitlines()]
    counts = Counter(what for what, _ in events)
    assert counts["loaded"] == 3, "by the run and by each worker"
    assert len({process for _, process in events}) == 3
    assert [counts[name] for name in NAMES] == [1, 1]
