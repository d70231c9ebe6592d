"""Files that survive a crash, and a lock that does not outlive its process.

Every change to the disk goes through one of the small functions at the end of this file, so that
the tests can make each of them fail in turn.
"""

import errno
import hashlib
import json
import os
import re
import secrets
import shlex
import socket
import stat
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from io import BufferedReader, FileIO
from pathlib import Path
from types import TracebackType
from typing import Self

import filelock

from remask.errors import RemaskError

AnyPath = str | os.PathLike[str]
"""A path as people give it; a Path inside."""

_ADVICE = {
    errno.ENOSPC: "Free some space there, or choose another folder",
    errno.EDQUOT: "Your quota is used up: free some space there, or choose another folder",
    errno.EFBIG: "Raise the file size limit (ulimit -f), or choose another file system",
    errno.EROFS: "Choose a folder that can be written",
    errno.EACCES: "Mend the permissions, or choose another folder",
    errno.EPERM: "Mend the permissions, or choose another folder",
    errno.EIO: "The disk may be failing: check it, or choose another folder",
    errno.ENOENT: "The folder is gone: make it again, or choose another",
    errno.EISDIR: "Name a file in it, or another",
    errno.EPIPE: "Its reader has left: start it again, or name a file",
}
_HOST = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]
_TEMPORARY = re.compile(r"\..+\.([0-9a-f]{8})-([0-9]{1,10})-[0-9a-f]{16}\.tmp")
_DAY = 24 * 60 * 60
_MAX_OWNER_BYTES = 1 << 16
_LONGEST_COMMAND = 200


class DurabilityError(RemaskError, OSError):
    """The disk refused; the message says what failed, where, why, and what to do."""


class LockHeldError(RemaskError):
    """Another process holds the lock; the message says which, since when, and what to do."""


def write_atomically(
    path: Path,
    data: bytes | Iterable[bytes | memoryview],
    *,
    like: os.stat_result | None = None,
) -> None:
    """Write a file that is there whole or not at all, and still there after a power cut.

    When this raises, the old file is as it was; only if the very last step failed the new one has
    taken its place, whole, but may not survive a power cut. Pieces that raise OSError themselves
    are taken for a failing disk. With `like`, the file gets that mode and, where allowed, owner.
    """
    temporary = path.with_name(f".{path.name}.{_HOST}-{os.getpid()}-{secrets.token_hex(8)}.tmp")
    try:
        with _create(temporary) as stream:
            for piece in [data] if isinstance(data, bytes) else data:
                _write(stream, piece)
            if like is not None:
                _imitate(stream, like)
            _sync_file(stream)
        _rename(temporary, path)
        _sync_folder(path.parent)
    except BaseException as error:
        with suppress(OSError):  # not there when creating it failed, or after the renaming
            _remove(temporary)
        if isinstance(error, OSError):
            raise _explained("write", path, error) from error
        raise


def check_output(path: Path) -> os.stat_result | None:
    """Refuse a file that `write_output` could not write, before hours are spent on its contents.

    Gives what is there now, or None.
    """
    try:
        there = path.stat()
    except FileNotFoundError:
        if not path.resolve().parent.is_dir():
            raise _explained("write", path, OSError(errno.ENOENT, "no such folder")) from None
        return None
    except OSError as error:
        raise _explained("write", path, error) from error
    if stat.S_ISDIR(there.st_mode):
        raise _explained("write", path, OSError(errno.EISDIR, "it is a folder"))
    return there


def write_output(path: Path, data: bytes) -> None:
    """Write a file that a user named, and leave what it is as it was.

    A regular file is replaced atomically and keeps its mode; a symbolic link stays one. A pipe or
    a device is written into, and so is what this process has for its standard output.
    """
    there = check_output(path)
    if there is None:
        write_atomically(path.resolve(), data)
        return
    # Replacing the file behind /dev/stdout would take away what was printed to it before.
    own = next((number for number in (1, 2) if _is_open_as(number, there)), None)
    if own is None and stat.S_ISREG(there.st_mode):
        write_atomically(path.resolve(), data, like=there)
        return
    sys.stdout.flush()
    try:
        with FileIO(path if own is None else own, "wb", closefd=own is None) as stream:
            _write(stream, data)
    except OSError as error:
        if own is not None and isinstance(error, BrokenPipeError):
            raise  # as for anything that is printed when nobody reads on
        raise _explained("write", path, error) from error


def make_folder(folder: Path) -> None:
    """Make a folder and its parents unless they are there, so that they survive a power cut."""
    try:
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        for path in reversed(missing):
            _make_folder(path)
            _sync_folder(path.parent)
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    except OSError as error:
        raise _explained("make the folder", folder, error) from error


def remove_quietly(path: Path) -> None:
    """Remove a file that does no harm if it stays."""
    with suppress(OSError):
        _remove(path)


def remove_stale_temporaries(folder: Path) -> None:
    """Remove what `write_atomically` left in a folder when its process died."""
    with suppress(OSError):
        for path in folder.glob(".*.tmp"):
            if (match := _TEMPORARY.fullmatch(path.name)) and _is_stale(path, *match.groups()):
                remove_quietly(path)


def open_regular(path: Path) -> BufferedReader:
    """Open a file for reading, refusing what may never end: pipes, devices, folders."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    return path.open("rb")


def read_limited(path: Path, max_bytes: int) -> bytes:
    """Read a whole file, taking no memory for one that is larger than it may be."""
    with open_regular(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size > max_bytes:
            raise OSError(errno.EFBIG, f"{size} bytes, where at most {max_bytes} are expected")
        return stream.read(size)


@dataclass(frozen=True)
class LockOwner:
    """Who holds a lock."""

    pid: int
    host: str
    command: str
    since: float
    """Seconds since 1970."""


class Lock:
    """Hold a lock while in its `with` block; no other process can at the same time.

    The operating system frees the lock of a process that dies, however it dies. What is written
    beside it, in NAME.owner.json, is for messages only and decides nothing.
    """

    def __init__(self, path: Path, *, timeout: float = 0.0) -> None:
        """Prepare to lock the file `path`, waiting for at most `timeout` seconds."""
        self._path = path
        self._owner_path = path.with_name(f"{path.name}.owner.json")
        self._lock = filelock.FileLock(path, timeout=max(timeout, 0.0), thread_local=False)
        self.taken_over_from: LockOwner | None = None
        """Who held it before, if that process died with the lock in its hands."""

    def __enter__(self) -> Self:
        """Take the lock."""
        make_folder(self._path.parent)
        # filelock would let the same object take it twice, and the inner block would free it.
        if self._lock.is_locked:
            raise self._held()
        try:
            self._lock.acquire()
        except filelock.Timeout:
            raise self._held() from None
        except (OSError, NotImplementedError) as error:
            raise _explained("lock", self._path, error) from error
        try:
            self.taken_over_from = _read_owner(self._owner_path)
            self._sign()
        except BaseException:  # without a block to leave, nobody else would free it
            self._lock.release()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Free the lock."""
        remove_quietly(self._owner_path)
        self._lock.release()

    def _sign(self) -> None:
        command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])[:_LONGEST_COMMAND]
        owner = LockOwner(os.getpid(), socket.gethostname(), command, time.time())
        try:
            write_atomically(self._owner_path, json.dumps(asdict(owner)).encode())
        except OSError:  # the lock is ours all the same; but nobody else shall be blamed
            remove_quietly(self._owner_path)

    def _held(self) -> LockHeldError:
        owner = _read_owner(self._owner_path)
        # Between taking the lock and signing, what is there is the dead holder's before.
        if owner is None or not _may_be_alive(owner):
            return LockHeldError(
                f"{self._path} is held by another process. Wait for it to end, then try again."
            )
        return LockHeldError(
            f"{self._path} is held by process {owner.pid} on {owner.host} ({owner.command}), "
            f"for {_duration(time.time() - owner.since)} now. Wait for it to end, or end it "
            f"(kill {owner.pid}), then try again."
        )


def _read_owner(path: Path) -> LockOwner | None:
    """Who signed, or None if nobody did or it cannot be made out."""
    try:
        match json.loads(read_limited(path, _MAX_OWNER_BYTES)):
            case {"pid": int(pid), "host": str(host), "command": str(command), "since": since}:
                if pid > 1:  # the message tells to kill it, and below are others than it
                    return LockOwner(pid, _printable(host), _printable(command), float(since))
    except (OSError, ValueError, TypeError, OverflowError, RecursionError):
        pass
    return None


def _printable(text: str) -> str:
    """Without anything that could steer a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text[:_LONGEST_COMMAND])


def _duration(seconds: float) -> str:
    for size, unit in ((_DAY, "days"), (60 * 60, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def _may_be_alive(owner: LockOwner) -> bool:
    return owner.host != socket.gethostname() or _is_running(owner.pid)


def _is_stale(path: Path, host: str, pid: str) -> bool:
    """Whether the writer of a temporary file is dead; of another host's, when a day has passed."""
    if host == _HOST and not _is_running(int(pid)):
        return True
    return time.time() - path.stat().st_mtime > _DAY


def _is_running(pid: int) -> bool:
    if os.name != "posix":  # os.kill would do more than ask there
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # someone else's
        return True
    return True


def _is_open_as(descriptor: int, there: os.stat_result) -> bool:
    try:
        return os.path.samestat(there, os.fstat(descriptor))
    except OSError:  # it is closed
        return False


def _explained(what: str, path: Path, error: OSError | NotImplementedError) -> DurabilityError:
    reason = getattr(error, "strerror", None) or str(error)
    advice = _ADVICE.get(getattr(error, "errno", None) or 0, "Choose another folder")
    return DurabilityError(f"cannot {what} {path}: {reason}. {advice}, then try again.")


def _create(path: Path) -> FileIO:
    return FileIO(path, "xb")


def _write(stream: FileIO, piece: bytes | memoryview) -> None:
    rest = memoryview(piece)
    while rest:  # the system may take a part only
        rest = rest[stream.write(rest) :]


def _imitate(stream: FileIO, like: os.stat_result) -> None:
    if os.name != "posix":
        return
    with suppress(PermissionError):  # only root may give files away
        os.fchown(stream.fileno(), like.st_uid, like.st_gid)
    os.fchmod(stream.fileno(), stat.S_IMODE(like.st_mode))


def _sync_file(stream: FileIO) -> None:
    os.fsync(stream.fileno())


def _rename(source: Path, target: Path) -> None:
    os.replace(source, target)  # noqa: PTH105 - named as the system call that is meant


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":  # elsewhere a folder cannot be opened, and the rename is journalled
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_folder(path: Path) -> None:
    path.mkdir(exist_ok=True)


def _remove(path: Path) -> None:
    path.unlink()
