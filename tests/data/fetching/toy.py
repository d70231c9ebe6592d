"""A small CIFAR-10, sources that offer it, and a web server."""

import hashlib
import io
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from remask.data import cifar
from remask.data.dataset import Dataset, verify
from remask.data.downloads import Progress
from remask.data.records import RecordDataset, RecordFile
from remask.data.registry import BENCHMARKS
from remask.data.sources import FileSource, LocalSource, Originals, Version

TOP = "cifar-10-batches-bin"
BATCH = 10
PIXELS = cifar.PIXELS


@dataclass(frozen=True)
class Toy:
    """CIFAR-10 with ten images per file: one of each class, in a different order per file."""

    files: dict[str, bytes]
    images: npt.NDArray[np.uint8]
    """Of the five train files, [50, 3, 32, 32]."""
    labels: npt.NDArray[np.uint8]
    """Of the five train files, [50]."""


def pack(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    # Reversed: an archive need not have its files in the order of their names.
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, contents in reversed(members.items()):
            info = tarfile.TarInfo(name)
            info.size = len(contents)
            tar.addfile(info, io.BytesIO(contents))
    return buffer.getvalue()


def _make_toy() -> Toy:
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


TOY = _make_toy()
TARBALL = pack({f"{TOP}/{name}": contents for name, contents in TOY.files.items()})


def toy_version(url: str = "") -> Version:
    """The binary version, at its published URL or another one."""
    version = cifar.CIFAR10.versions[0]
    assert version.archive is not None
    md5 = hashlib.md5(TARBALL).hexdigest()
    archive = replace(version.archive, checksum=md5, size=len(TARBALL))
    return replace(version, archive=replace(archive, url=url or archive.url))


def toy_dataset(*sources: FileSource) -> RecordDataset:
    files = tuple(
        RecordFile(name, BATCH, hashlib.sha256(contents).hexdigest())
        for name, contents in TOY.files.items()
    )
    versions = (toy_version(), *cifar.CIFAR10.versions[1:])
    return replace(
        cifar.CIFAR10, train=files[:5], test=files[5:], sources=sources, versions=versions
    )


def use(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Load the benchmark from this dataset."""
    name = f"split-{dataset.name}"
    monkeypatch.setitem(BENCHMARKS, name, replace(BENCHMARKS[name], dataset=dataset))


def contents(cache: Path) -> dict[str, bytes]:
    """Return the files of the cache, except the lock and the stamps."""
    own = (".lock", ".verified.json")
    return {path.name: path.read_bytes() for path in cache.iterdir() if path.name not in own}


def assert_complete(cache: Path) -> None:
    """Four correct arrays and a manifest, and nothing else."""
    assert [status.state for status in verify(toy_dataset())] == ["ok"] * 4
    assert sorted(Path(name).suffix for name in contents(cache)) == [".json"] + [".npy"] * 4


class Unpacked:
    """A source that works, or raises."""

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
        with LocalSource(self.folder, (toy_version(),)).originals(folder, progress) as originals:
            yield originals


@dataclass
class Server:
    """What the local web server offers, how it misbehaves, and what it was asked for."""

    url: str = ""
    bodies: dict[str, bytes] = field(default_factory=dict)
    break_off_after: int | None = None
    honours_range: bool = True
    announces_length: bool = True
    drips: str = ""
    requests: list[tuple[str, str | None]] = field(default_factory=list)

    def handler(self) -> type[BaseHTTPRequestHandler]:
        state = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name = self.path.removeprefix("/")
                wanted_range = self.headers["Range"]
                state.requests.append((name, wanted_range))
                if name not in state.bodies:
                    self.send_error(404)
                    return
                body, start = state.bodies[name], 0
                if wanted_range and state.honours_range:
                    start = int(wanted_range.removeprefix("bytes=").removesuffix("-"))
                    if start >= len(body):
                        self.send_error(416)
                        return
                    self.send_response(206)
                else:
                    self.send_response(200)
                if state.announces_length:
                    self.send_header("Content-Length", str(len(body) - start))
                self.end_headers()
                if state.drips == name:
                    with suppress(OSError):  # the client has left
                        for byte in body[start:]:
                            self.wfile.write(bytes([byte]))
                            time.sleep(0.05)
                    return
                self.wfile.write(body[start:][: state.break_off_after])

            def log_message(self, *args: object) -> None:
                pass

        return Handler
