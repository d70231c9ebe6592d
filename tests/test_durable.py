"""Writing files whole, reading them with a limit, and locks between processes."""

import errno
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from remask import durable
from remask.durable import (
    DurabilityError,
    Lock,
    LockHeldError,
    make_folder,
    read_limited,
    remove_stale_temporaries,
    write_atomically,
    write_output,
)

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

HOLD = """
import sys, time
from pathlib import Path
from remask.durable import Lock
with Lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


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
        durable._write(stream, bytes(range(256)) * 50)
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
        (errno.EACCES, "Permission denied", "Mend the permissions"),
        (errno.EIO, "Input/output error", "disk may be failing"),
        (errno.ENAMETOOLONG, "File name too long", "another folder"),
    ],
)
def test_the_message_says_what_failed_where_why_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, reason: str, advice: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(durable, "_sync_file", refuse)
    with pytest.raises(DurabilityError) as caught:
        write_atomically(tmp_path / "file", b"new")
    message = str(caught.value)
    assert message.startswith(f"cannot write {tmp_path / 'file'}: {reason}. ")
    assert advice in message


def test_a_folder_that_is_not_there_or_is_a_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(DurabilityError, match="folder is gone"):
        write_atomically(tmp_path / "missing" / "file", b"")
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "inner"):
        with pytest.raises(DurabilityError, match="Not a directory"):
            make_folder(folder)


def test_a_folder_is_made_with_its_parents_and_may_be_there(tmp_path: Path) -> None:
    for _ in range(2):
        make_folder(tmp_path / "a" / "b")
        assert (tmp_path / "a" / "b").is_dir()


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
def test_what_is_no_file_is_refused_instead_of_waited_for(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "odd")
    with pytest.raises(OSError, match="not a regular file"):
        read_limited(tmp_path / "odd", 100)


def test_temporaries_of_the_dead_are_removed_and_those_of_the_living_are_not(
    tmp_path: Path,
) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    host, tail = durable._HOST, f"{'a' * 16}.tmp"
    names = {
        f".x.{host}-{dead.pid}-{tail}": False,
        f".x.{host}-{os.getpid()}-{tail}": True,
        f".x.{host}-1-{tail}": True,
        f".x.{host}-9999999999-{tail}": False,
        f".x.00000000-{dead.pid}-{tail}": True,  # of another host, a moment ago
        ".mine.tmp": True,
        f"x.{host}-{dead.pid}-{tail}": True,
    }
    for name in names:
        (tmp_path / name).touch()
    yesterday = tmp_path / f".x.00000001-1-{tail}"
    yesterday.touch()
    os.utime(yesterday, (0, time.time() - 25 * 60 * 60))
    remove_stale_temporaries(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {n for n, stays in names.items() if stays}


def test_the_temporaries_are_named_as_the_removal_expects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    monkeypatch.setattr(durable, "_rename", lambda source, _: names.append(source.name))
    write_atomically(tmp_path / "checkpoint", b"")
    match = durable._TEMPORARY.fullmatch(names[0])
    assert match is not None
    assert match.groups() == (durable._HOST, str(os.getpid()))


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


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root can make a device"
)
@pytest.mark.parametrize(("minor", "complaint"), [(3, None), (7, "No space left on device")])
def test_an_output_into_a_device_leaves_it_a_device(
    tmp_path: Path, minor: int, complaint: str | None
) -> None:
    device = tmp_path / "device"  # of its own, made as /dev/null and /dev/full are
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, minor))
        device.open("wb").close()
    except OSError as error:
        pytest.skip(f"devices cannot be made here: {error}")
    if complaint is None:
        write_output(device, b"x" * 100_000)
    else:
        with pytest.raises(DurabilityError, match=complaint):
            write_output(device, b"x")
    assert device.is_char_device()
    assert list(tmp_path.iterdir()) == [device]


def test_an_output_into_the_standard_output_comes_after_what_was_printed(tmp_path: Path) -> None:
    script = """
import os
from pathlib import Path
from remask.durable import write_output
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


@contextmanager
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock, ended at the end of the block."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_lock_can_be_taken_again_after_it_was_freed(tmp_path: Path) -> None:
    lock = Lock(tmp_path / "folder" / "lock")
    for _ in range(2):
        with lock:
            assert lock.taken_over_from is None
            assert (tmp_path / "folder" / "lock.owner.json").exists()
        assert not (tmp_path / "folder" / "lock.owner.json").exists()


def test_a_lock_is_freed_when_its_block_or_its_entry_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    # Kept, since filelock frees what is no longer referred to.
    first, second = Lock(tmp_path / "lock"), Lock(tmp_path / "lock")
    with pytest.raises(ZeroDivisionError), first:
        _ = 1 / 0
    with monkeypatch.context() as patch:
        patch.setattr(durable, "_read_owner", interrupt)
        with pytest.raises(KeyboardInterrupt), second:
            pass
    with Lock(tmp_path / "lock"):
        assert first is not second


def test_a_lock_is_not_taken_twice_within_a_process(tmp_path: Path) -> None:
    lock = Lock(tmp_path / "lock")
    for inner in (lock, Lock(tmp_path / "lock")):
        with lock:
            with pytest.raises(LockHeldError, match=str(os.getpid())), inner:
                pass
            with pytest.raises(LockHeldError), Lock(tmp_path / "lock"):
                pass


def test_a_lock_of_a_living_process_is_refused_and_the_message_names_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with holder(path) as process:
        owner = json.loads((tmp_path / "lock.owner.json").read_text())
        owner["since"] -= 200
        (tmp_path / "lock.owner.json").write_text(json.dumps(owner))
        with pytest.raises(LockHeldError) as caught, Lock(path):
            pass
        message = str(caught.value)
        process.kill()
    for part in (
        f"{path} is held by process {process.pid} on {socket.gethostname()} (-c ",
        "for 3 min now",
        f"kill {process.pid}",
    ):
        assert part in message


def test_a_lock_of_a_killed_process_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with holder(path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        with Lock(path) as lock:
            assert lock.taken_over_from is not None
            assert lock.taken_over_from.pid == process.pid
            assert json.loads((tmp_path / "lock.owner.json").read_text())["pid"] == os.getpid()


def test_a_lock_is_waited_for_as_long_as_allowed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with holder(path) as process:
        start = time.monotonic()
        with pytest.raises(LockHeldError), Lock(path, timeout=0.3):
            pass
        assert time.monotonic() - start >= 0.3
        timer = threading.Timer(0.2, process.kill)
        timer.start()
        with Lock(path, timeout=30):
            assert time.monotonic() - start >= 0.5
        timer.join()


def test_a_holder_that_has_not_signed_yet_is_not_mistaken_for_the_dead_one_before(
    tmp_path: Path,
) -> None:
    path = tmp_path / "lock"
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    with Lock(path):
        owner = {"pid": dead.pid, "host": socket.gethostname(), "command": "dead", "since": 0}
        (tmp_path / "lock.owner.json").write_text(json.dumps(owner))
        with pytest.raises(LockHeldError, match="held by another process"), Lock(path):
            pass


def test_processes_that_compete_for_a_lock_never_hold_it_together(tmp_path: Path) -> None:
    """Each makes a file that must not be there; one of them dies with the lock in its hands."""
    script = """
import os, sys, time
from pathlib import Path
from remask.durable import Lock
folder, me = Path(sys.argv[1]), int(sys.argv[2])
for turn in range(20):
    with Lock(folder / "lock", timeout=60):
        inside = folder / "inside"
        inside.touch(exist_ok=False)
        (folder / "turns").open("a").write("x")
        time.sleep(0.002)
        inside.unlink()
        if me == 0 and turn == 5:
            os.kill(os.getpid(), 9)
"""
    processes = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path), str(number)])
        for number in range(4)
    ]
    assert [process.wait(timeout=120) for process in processes] == [-9, 0, 0, 0]
    assert (tmp_path / "turns").read_text() == "x" * 66


def test_a_lock_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    with (
        pytest.raises(DurabilityError, match=r"cannot lock .*Is a directory"),
        Lock(tmp_path / "lock"),
    ):
        pass
