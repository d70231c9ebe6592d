"""A small CIFAR-10, sources that offer it, and a web server."""

import hashlib
import io
import tarfile
from dataclasses import dataclass, field, replace
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from remask.data.dataset import Dataset, check
from remask.data.published import PIXELS
from remask.data.registry import BENCHMARKS, DATASETS
from remask.data.sources import Source

TOP = "cifar-10-batches-bin"
BATCH = 10
CIFAR10 = DATASETS["cifar10"]
NAME = "cifar-10-binary.tar.gz"


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


def array_checksums() -> tuple[str, ...]:
    """SHA-256 of the .npy files."""
    test = np.frombuffer(TOY.files["test_batch.bin"], np.uint8).reshape(BATCH, -1)
    sums = []
    for images, labels in ((TOY.images, TOY.labels), (test[:, 1:], test[:, 0])):
        for array in (images.reshape(-1, 3, 32, 32), labels.reshape(-1, 1)):
            buffer = io.BytesIO()
            np.save(buffer, np.ascontiguousarray(array))
            sums.append(hashlib.sha256(buffer.getvalue()).hexdigest())
    return tuple(sums)


def small(source: Source, images: int = BATCH) -> Source:
    """A source of CIFAR whose files have few images."""
    read: Any = source.read
    return replace(source, read=partial(read, images=(images, images)))


def toy_source(url: str = f"/nowhere/{NAME}") -> Source:
    """The binary version at a URL, or at none that exists."""
    md5 = hashlib.md5(TARBALL).hexdigest()
    return replace(small(CIFAR10.sources[0]), url=url, checksum=md5, size=len(TARBALL))


def toy_dataset(*sources: Source) -> Dataset:
    return replace(CIFAR10, sources=sources or (toy_source(),), checksums=array_checksums())


def use(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Load the benchmark from this dataset."""
    name = f"split-{dataset.name}"
    monkeypatch.setitem(BENCHMARKS, name, replace(BENCHMARKS[name], dataset=dataset))


def contents(cache: Path) -> dict[str, bytes]:
    """Return the files of the cache, except the lock."""
    return {path.name: path.read_bytes() for path in cache.iterdir() if path.name != ".lock"}


def states(dataset: Dataset) -> list[str]:
    return [status.state for status in check(dataset)]


def assert_complete(cache: Path) -> None:
    """Four correct arrays and a manifest, and nothing else."""
    assert states(toy_dataset()) == ["ok"] * 4
    assert sorted(Path(name).suffix for name in contents(cache)) == [".json"] + [".npy"] * 4


@dataclass
class Server:
    """What the local web server offers, how it misbehaves, and what it was asked for."""

    url: str = ""
    bodies: dict[str, bytes] = field(default_factory=dict)
    break_off_after: int | None = None
    honours_range: bool = True
    announces_length: bool = True
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
                self.wfile.write(body[start:][: state.break_off_after])

            def log_message(self, *args: object) -> None:
                pass

        return Handler
