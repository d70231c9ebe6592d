"""Files and locks that survive a crash.

Every change to the disk goes through the small functions at the end, which fault tests replace.
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
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader, FileIO
from pathlib import Path
from typing import Self

import filelock

from remask.errors import RemaskError, printable
from remask.machine import write_duration

AnyPath = str | os.PathLike[str]

_ADVICE = {
    errno.ENOSPC: "Free some space there, or choose another folder",
    errno.EDQUOT: "Free some space there, or choose another folder",
    errno.EFBIG: "Raise the file size limit (ulimit -f), or choose another file system",
    errno.EROFS: "Choose a folder that can be written",
    errno.EACCES: "Fix the permissions, or choose another folder",
    errno.EPERM: "Fix the permissions, or choose another folder",
    errno.EIO: "The disk may be failing: check it, or choose another folder",
    errno.ENOENT: "Create the folder, or choose another",
    errno.EISDIR: "Name a file in it, or another",
    errno.EPIPE: "Its reader has left: start it again, or name a file",
}
_HOST_NAME = socket.gethostname()
_HOST = hashlib.sha256(_HOST_NAME.encode()).hexdigest()[:8]
_TEMPORARY = re.compile(r"\..+\.([0-9a-f]{8})-([0-9]{1,10})-[0-9a-f]{16}\.tmp")
_DAY = 24 * 60 * 60
_LONGEST_COMMAND = 200
_writing: set[str] = set()
"""The temporary names that this process uses."""


class DurabilityError(RemaskError, OSError):
    """A file operation failed; the message has the path, the reason and what to do."""


def refusal(what: str, path: Path, error: OSError | NotImplementedError) -> DurabilityError:
    """Return the exception for a failed file operation, with advice."""
    reason = getattr(error, "strerror", None) or str(error)
    advice = _ADVICE.get(getattr(error, "errno", None) or 0, "Choose another folder")
    return DurabilityError(f"cannot {what} {path}: {reason}. {advice}, then try again.")


def write_atomically(
    path: Path,
    data: bytes | Iterable[bytes | memoryview],
    *,
    like: os.stat_result | None = None,
    private: bool = False,
) -> None:
    """Write a whole file or nothing, so that it survives a power cut.

    When this raises, the old file is unchanged; only if the last step, syncing the folder, fails,
    the new one is in place. With `like`, the file gets that mode and, where allowed, owner. With
    `private`, only its owner can read it.
    """
    with temporary_beside(path) as temporary:
        try:
            with _create(temporary, 0o600 if private else 0o666) as stream:
                write_all(stream, data)
                if like is not None:
                    with suppress(PermissionError):  # only root may change owners
                        os.fchown(stream.fileno(), like.st_uid, like.st_gid)
                    os.fchmod(stream.fileno(), stat.S_IMODE(like.st_mode))
                _sync_file(stream)
            _rename(temporary, path)
            _sync_folder(path.parent)
        except OSError as error:
            raise refusal("write", path, error) from error


@contextmanager
def temporary_beside(path: Path) -> Iterator[Path]:
    """A name beside `path` for an incomplete file or folder, removed at the end of the block.

    If the process dies, `remove_stale_temporaries` removes it.
    """
    name = f".{path.name}.{_HOST}-{os.getpid()}-{secrets.token_hex(8)}.tmp"
    _writing.add(name)
    try:
        yield path.with_name(name)
    finally:
        with suppress(OSError):
            remove_tree(path.with_name(name))
        _writing.discard(name)


def write_all(stream: FileIO, data: bytes | Iterable[bytes | memoryview]) -> None:
    """Write data into an open file, in pieces."""
    for piece in [data] if isinstance(data, bytes) else data:
        _write(stream, piece)


def make_folder(folder: Path, *, private: bool = False) -> None:
    """Make a folder and missing parents, so that they survive a power cut.

    With `private`, only its owner can list the new folders.
    """
    try:
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        for path in reversed(missing):
            _make_folder(path, 0o700 if private else 0o777)
            _sync_folder(path.parent)
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    except OSError as error:
        raise refusal("make the folder", folder, error) from error


def remove_quietly(path: Path) -> None:
    """Remove a file; errors are ignored."""
    with suppress(OSError):
        _remove(path)


def remove_tree(path: Path) -> None:
    """Remove a file, a link or a folder and its contents. Links are not followed.

    Raises DurabilityError if something cannot be removed, after removing the rest.
    """
    failed: list[tuple[Path, OSError]] = []
    _remove_below(path, failed)
    if failed:
        raise refusal("remove", *failed[0])


def _remove_below(path: Path, failed: list[tuple[Path, OSError]]) -> None:
    try:
        if stat.S_ISDIR(path.lstat().st_mode):
            for name in sorted(os.listdir(path)):  # noqa: PTH208 - unlike iterdir it is complete
                _remove_below(path / name, failed)
            _remove_folder(path)
        else:
            _remove(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        failed.append((path, error))


def is_temporary(name: str) -> bool:
    """Whether `temporary_beside` makes such names."""
    return _TEMPORARY.fullmatch(name) is not None


def remove_stale_temporaries(folder: Path) -> None:
    """Remove what `temporary_beside` left in a folder when its process died."""
    for path in folder.glob(".*.tmp"):
        with suppress(OSError):
            if (match := _TEMPORARY.fullmatch(path.name)) and _is_stale(path, *match.groups()):
                remove_tree(path)


def _is_stale(path: Path, host: str, pid: str) -> bool:
    """Whether the writer of a temporary file is dead; on another host, whether a day has passed."""
    if host == _HOST and int(pid) == os.getpid():
        return path.name not in _writing  # in a container, an earlier process may have had our id
    if host == _HOST and not is_running(int(pid)):
        return True
    return time.time() - path.stat().st_mtime > _DAY


def is_running(pid: int) -> bool:
    """Whether a process of this machine has this id."""
    try:
        os.kill(pid, 0)
    except PermissionError:  # of another user
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading; pipes and devices, which may never end, raise OSError."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    return path.open("rb")


def read_limited(path: Path, max_bytes: int) -> bytes:
    """Read a whole file; a larger one raises OSError and takes no memory."""
    with open_regular(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size > max_bytes:
            raise OSError(errno.EFBIG, f"{size} bytes, where at most {max_bytes} are expected")
        return stream.read(size)


# Locks


class LockHeldError(RemaskError):
    """Another process or call holds the lock; the message has which, since when, what to do."""


class Lock:
    """Holds a lock between processes while in its `with` block.

    The operating system frees the lock of a process that dies. NAME.owner.json beside it is for
    messages only.
    """

    def __init__(self, path: Path, *, timeout: float = 0.0) -> None:
        """Lock the file `path` on entry, waiting for at most `timeout` seconds."""
        self._path = path
        self._timeout = max(timeout, 0.0)
        self._lock = filelock.FileLock(path, timeout=self._timeout, thread_local=False)

    def __enter__(self) -> Self:
        """Take the lock."""
        make_folder(self._path.parent)
        # filelock lets the same object take it twice, and the inner block would free it.
        if self._lock.is_locked:
            raise self._held()
        try:
            self._lock.acquire()
        except filelock.Timeout:
            raise self._held() from None
        except (OSError, NotImplementedError) as error:
            raise refusal("lock", self._path, error) from error
        owner = {
            "pid": os.getpid(),
            "host": _HOST_NAME,
            "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])[:_LONGEST_COMMAND],
            "since": time.time(),
        }
        try:
            write_atomically(_owner_path(self._path), json.dumps(owner).encode())
        except OSError:  # an earlier owner must not be named
            remove_quietly(_owner_path(self._path))
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Free the lock."""
        remove_quietly(_owner_path(self._path))
        self._lock.release()

    def _held(self) -> LockHeldError:
        holder = holder_of(self._path) or "another process"
        waited = f" (waited {self._timeout:g} s)" if self._timeout else ""
        return LockHeldError(
            f"{self._path} is held by {holder}{waited}. Wait for it to end, or end it, then try "
            f"again."
        )


def holder_of(path: Path) -> str | None:
    """Describe the process that holds the lock at `path`, if it is known; takes no lock."""
    try:
        owner = json.loads(read_limited(_owner_path(path), 1 << 16))
        pid, host, since = int(owner["pid"]), str(owner["host"]), float(owner["since"])
        if host == _HOST_NAME and not is_running(pid):  # a dead owner did not remove its file
            return None
        is_here = (pid, host) == (os.getpid(), _HOST_NAME)
        name = "another call in this process" if is_here else f"process {pid} on {host[:100]}"
        command = str(owner["command"])[:_LONGEST_COMMAND].replace("\n", "?").replace("\t", "?")
        return printable(f"{name} ({command}), for {write_duration(time.time() - since)} now")
    except (OSError, ValueError, TypeError, LookupError, OverflowError, RecursionError):
        return None


def _owner_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.owner.json")


# Changes to the disk


def _create(path: Path, mode: int) -> FileIO:
    return FileIO(path, "xb", opener=lambda name, flags: os.open(name, flags, mode))


def _write(stream: FileIO, piece: bytes | memoryview) -> None:
    rest = memoryview(piece)
    while rest:  # the system may write a part only
        rest = rest[stream.write(rest) :]


def _sync_file(stream: FileIO) -> None:
    os.fsync(stream.fileno())


def _rename(source: Path, target: Path) -> None:
    os.replace(source, target)  # noqa: PTH105 - named as the system call that is meant


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_folder(path: Path, mode: int) -> None:
    path.mkdir(mode, exist_ok=True)


def _remove(path: Path) -> None:
    path.unlink()


def _remove_folder(path: Path) -> None:
    path.rmdir()
