"""Writing whole files, and reading with a limit."""

import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from remask import files
from remask.files import (
    DurabilityError,
    make_folder,
    read_limited,
    remove_stale_temporaries,
    write_atomically,
)
from remask.outputs import write_output

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer


def test_a_file_is_written_whole_and_replaces_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")
    write_atomically(path, (piece for piece in (b"new", memoryview(b"er"), b"")))
    assert path.read_bytes() == b"newer"
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_the_system_takes_in_parts_is_finished(tmp_path: Path) -> None:
    class ShortWrites(FileIO):
        def write(self, data: "Buffer", /) -> int:
            return super().write(memoryview(data)[:999])

    with ShortWrites(tmp_path / "file", "xb") as stream:
        files._write(stream, bytes(range(256)) * 50)
    assert (tmp_path / "file").read_bytes() == bytes(range(256)) * 50


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_write_that_is_broken_off_leaves_the_old_file_and_no_other(
    tmp_path: Path, error: type[BaseException]
) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"half"
        raise error

    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(error):
        write_atomically(path, pieces())
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("code", "reason", "advice"),
    [
        (errno.ENOSPC, "No space left on device", "Free some space"),
        (errno.EROFS, "Read-only file system", "can be written"),
        (errno.EACCES, "Permission denied", "Fix the permissions"),
        (errno.EIO, "Input/output error", "disk may be failing"),
    ],
)
def test_the_message_says_what_failed_where_why_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, reason: str, advice: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(files, "_sync_file", refuse)
    with pytest.raises(DurabilityError) as caught:
        write_atomically(tmp_path / "file", b"new")
    message = str(caught.value)
    assert message.startswith(f"cannot write {tmp_path / 'file'}: {reason}. ")
    assert advice in message


def test_folders_are_made_with_their_parents_and_errors_reported(tmp_path: Path) -> None:
    with pytest.raises(DurabilityError, match="Create the folder"):
        write_atomically(tmp_path / "missing" / "file", b"")
    for _ in range(2):
        make_folder(tmp_path / "a" / "b")
        assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "inner"):
        with pytest.raises(DurabilityError, match="Not a directory"):
            make_folder(folder)


def test_a_file_larger_than_allowed_is_refused_without_reading_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_limited(path, 5) == b"12345"
    with pytest.raises(OSError, match="5 bytes, where at most 4"):
        read_limited(path, 4)
    os.truncate(path, 1 << 42)  # sparse: reading it would take 4 TB of memory
    with pytest.raises(OSError, match="at most 4"):
        read_limited(path, 4)


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_only_regular_files_are_read(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "odd")
    with pytest.raises(OSError, match="not a regular file"):
        read_limited(tmp_path / "odd", 100)


@pytest.mark.processes
def test_temporary_files_of_dead_processes_are_removed(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    host, tail = files._HOST, f"{'a' * 16}.tmp"
    names = {
        f".x.{host}-{dead.pid}-{tail}": False,
        f".x.{host}-{os.getpid()}-{tail}": False,  # an earlier process had our id
        f".x.{host}-1-{tail}": True,
        f".x.{host}-9999999999-{tail}": False,
        f".x.00000000-{dead.pid}-{tail}": True,  # of another host, a moment ago
        ".mine.tmp": True,
        f"x.{host}-{dead.pid}-{tail}": True,
    }
    for name in names:
        (tmp_path / name).touch()
    unfinished = tmp_path / f".store.{host}-{dead.pid}-{tail}"
    unfinished.mkdir()
    (unfinished / "new.db-journal").touch()
    yesterday = tmp_path / f".x.00000001-1-{tail}"
    yesterday.touch()
    os.utime(yesterday, (0, time.time() - 25 * 60 * 60))
    remove_stale_temporaries(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {n for n, stays in names.items() if stays}


def test_an_output_replaces_a_file_and_keeps_its_mode_and_the_link_to_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "file").chmod(0o640)
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "dangling").symlink_to("new")
    write_output(tmp_path / "link", b"newer")
    write_output(tmp_path / "dangling", b"new")
    assert (tmp_path / "file").read_bytes() == b"newer"
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "new").read_bytes() == b"new"
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "dangling").is_symlink()
    assert len(list(tmp_path.iterdir())) == 4


def test_an_output_into_a_pipe_goes_to_its_reader_and_the_pipe_stays(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    data = bytes(range(256)) * 1000  # more than a pipe holds
    for name in (pipe, link):
        with ThreadPoolExecutor(1) as reading:
            read = reading.submit(pipe.read_bytes)
            write_output(name, data)
            assert read.result(timeout=30) == data
        assert pipe.is_fifo()
        assert sorted(tmp_path.iterdir()) == [link, pipe]


def test_an_output_whose_reader_leaves_is_reported(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as reading:
        reading.submit(lambda: pipe.open("rb").close())
        with pytest.raises(DurabilityError, match=r"pipe: Broken pipe\. Its reader has left"):
            write_output(pipe, b"x" * 1_000_000)
    assert pipe.is_fifo()
    with pytest.raises(DurabilityError, match="No space left on device"):
        write_output(Path("/dev/full"), b"x")


@pytest.mark.processes
def test_an_output_into_the_standard_output_comes_after_what_was_printed(tmp_path: Path) -> None:
    script = """
import os
from pathlib import Path
from remask.outputs import write_output
print("first")
write_output(Path("/dev/stdout"), b"second\\n")
print("third")
"""
    target = tmp_path / "out"
    with target.open("wb") as stream:
        subprocess.run([sys.executable, "-c", script], stdout=stream, check=True)
    assert target.read_text() == "first\nsecond\nthird\n"
    piped = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, check=True)
    assert piped.stdout == b"first\nsecond\nthird\n"


def test_an_output_that_is_a_folder_or_in_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for name, complaint in (
        (".", "it is a folder"),
        ("missing/file", "no such folder"),
        ("loop", "Too many levels of symbolic links"),
    ):
        with pytest.raises(DurabilityError, match=rf"cannot write .*: {complaint}"):
            write_output(tmp_path / name, b"")
    assert [path.name for path in tmp_path.iterdir()] == ["loop"]
