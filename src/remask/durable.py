"""Files that survive a crash.

Every change to the disk goes through one of the small functions at the end of this file, so that
the tests can make each of them fail in turn.
"""

import errno
import hashlib
import os
import re
import secrets
import socket
import stat
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from io import BufferedReader, FileIO
from pathlib import Path

from remask.errors import RemaskError

AnyPath = str | os.PathLike[str]
"""A path as people give it; a Path inside."""

_ADVICE = {
    errno.ENOSPC: "Free some space there, or choose another folder",
    errno.EDQUOT: "Your quota is used up: free some space there, or choose another folder",
    errno.EFBIG: "Raise the file size limit (ulimit -f), or choose another file system",
    errno.EROFS: "Choose a folder that can be written",
    errno.EACCES: "Fix the permissions, or choose another folder",
    errno.EPERM: "Fix the permissions, or choose another folder",
    errno.EIO: "The disk may be failing: check it, or choose another folder",
    errno.ENOENT: "The folder is gone: make it again, or choose another",
    errno.EISDIR: "Name a file in it, or another",
    errno.EPIPE: "Its reader has left: start it again, or name a file",
}
_HOST = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]
_TEMPORARY = re.compile(r"\..+\.([0-9a-f]{8})-([0-9]{1,10})-[0-9a-f]{16}\.tmp")
_DAY = 24 * 60 * 60
_FILE, _PRIVATE_FILE, _FOLDER, _PRIVATE_FOLDER = 0o666, 0o600, 0o777, 0o700  # less the umask


_BEGINNINGS = {
    re.compile(mark, re.DOTALL): kind
    for mark, kind in (
        (rb"SQLite format 3\0", "an SQLite database, such as a results store"),
        (rb"\x37\x7f\x06[\x82\x83]", "the log of an SQLite database"),
        (rb"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7", "the journal of an SQLite database"),
        (rb'.{8}\{"__metadata__":\{"remask":"[0-9a-f]{128}', "a checkpoint"),
        (rb'\{\s*"format":.{1,40}"sha256":\s*"[0-9a-f]{64}",\s*"learner":', "a learner's manifest"),
        (rb"\x93NUMPY", "a NumPy array"),
    )
}
"""How the files begin that no output may replace, and what they are."""
_LONGEST_BEGINNING = 512
_LEARNER_FILE = re.compile(r"[a-z]+-[0-9]{6,12}\.(?:safetensors|npy)")
_SIDE_FILE = re.compile(r"(.+)-(?:wal|shm|journal)")
_writing: set[str] = set()
"""The names of the temporary files that this process is writing."""


class DurabilityError(RemaskError, OSError):
    """The disk refused; the message says what failed, where, why, and what to do."""


def write_atomically(
    path: Path,
    data: bytes | Iterable[bytes | memoryview],
    *,
    like: os.stat_result | None = None,
    private: bool = False,
) -> None:
    """Write a file that is there whole or not at all, and still there after a power cut.

    When this raises, the old file is as it was; only if the very last step failed the new one has
    taken its place, whole, but may not survive a power cut. Pieces that raise OSError themselves
    are taken for a failing disk. With `like`, the file gets that mode and, where allowed, owner.
    With `private`, only its owner can read it.
    """
    temporary = path.with_name(f".{path.name}.{_HOST}-{os.getpid()}-{secrets.token_hex(8)}.tmp")
    _writing.add(temporary.name)
    try:
        with _create(temporary, _PRIVATE_FILE if private else _FILE) as stream:
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
            raise refusal("write", path, error) from error
        raise
    finally:
        _writing.discard(temporary.name)


def check_output(path: Path, in_use: Sequence[Path] = ()) -> os.stat_result | None:
    """Refuse a file that `write_output` would not write, before hours are spent on its contents.

    It refuses folders, the files `in_use` that the caller reads, and every file that begins as
    one of remask's own or another database. Returns what is there now, or None.
    """
    try:
        there = path.stat()
    except FileNotFoundError:
        there = None
        if not path.resolve().parent.is_dir():
            raise refusal("write", path, OSError(errno.ENOENT, "no such folder")) from None
    except OSError as error:
        raise refusal("write", path, error) from error
    if there is not None and stat.S_ISDIR(there.st_mode):
        raise refusal("write", path, OSError(errno.EISDIR, "it is a folder"))
    if (kept := _kept_as(path, there, in_use)) is not None:
        raise DurabilityError(f"{path} is {kept}. It was left as it is. Name another file.")
    return there


def _kept_as(path: Path, there: os.stat_result | None, in_use: Sequence[Path]) -> str | None:
    """What a file is that no output may replace; None for any other."""
    used = [file.resolve() for file in in_use]
    if path.resolve() in used:
        return "read or written by the same command"
    if beside := _SIDE_FILE.fullmatch(path.name):
        store = path.with_name(beside[1])
        if store.resolve() in used or _begins_as(store) is not None:
            return f"a part of {store.name}, which is an SQLite database"
    if _LEARNER_FILE.fullmatch(path.name) and _begins_as(path.with_name("learner.json")):
        return "a part of the learner beside it"
    return _begins_as(path) if there is not None and stat.S_ISREG(there.st_mode) else None


def _begins_as(path: Path) -> str | None:
    """The kind of a file by its first bytes, if it is one to keep."""
    try:
        with open_regular(path) as stream:
            beginning = stream.read(_LONGEST_BEGINNING)
    except PermissionError:
        return "protected from reading, so what it holds is unknown"
    except OSError:
        return None
    return next((kind for mark, kind in _BEGINNINGS.items() if mark.match(beginning)), None)


def write_output(path: Path, data: bytes | Iterable[bytes], in_use: Sequence[Path] = ()) -> None:
    """Write a file that a user named, if `check_output` allows it.

    A regular file is replaced atomically and keeps its mode; a symbolic link stays one. A pipe or
    a device is written into, and so is what this process has for its standard output.
    """
    there = check_output(path, in_use)
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
            for piece in [data] if isinstance(data, bytes) else data:
                _write(stream, piece)
    except OSError as error:
        if own is not None and isinstance(error, BrokenPipeError):
            raise  # as for anything that is printed when nobody reads on
        raise refusal("write", path, error) from error


def make_folder(folder: Path, *, private: bool = False) -> None:
    """Make a folder and its parents unless they are there, so that they survive a power cut.

    With `private`, only its owner can look into what is made.
    """
    try:
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        for path in reversed(missing):
            _make_folder(path, _PRIVATE_FOLDER if private else _FOLDER)
            _sync_folder(path.parent)
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    except OSError as error:
        raise refusal("make the folder", folder, error) from error


def remove_quietly(path: Path) -> None:
    """Remove a file that does no harm if it stays."""
    with suppress(OSError):
        _remove(path)


def remove_stale_temporaries(folder: Path) -> None:
    """Remove the files that `write_atomically` left in a folder when its process died.

    Another process may be writing there, so its files stay. The owner of a lock on the folder can
    remove all of them: see `is_temporary`.
    """
    with suppress(OSError):
        for path in folder.glob(".*.tmp"):
            if (match := _TEMPORARY.fullmatch(path.name)) and _is_stale(path, *match.groups()):
                remove_quietly(path)


def is_temporary(name: str) -> bool:
    """Whether `write_atomically` gives this name to a file that is not complete yet."""
    return _TEMPORARY.fullmatch(name) is not None


def remove_tree(path: Path) -> None:
    """Remove a file, a link or a folder with all that is in it. Links are not followed.

    Raises DurabilityError if something cannot be removed; the rest is removed nevertheless.
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


def _is_stale(path: Path, host: str, pid: str) -> bool:
    """Whether the writer of a temporary file is dead; of another host's, when a day has passed."""
    if host == _HOST and int(pid) == os.getpid():
        return path.name not in _writing  # in a container, the process before may have had our id
    if host == _HOST and not is_running(int(pid)):
        return True
    return time.time() - path.stat().st_mtime > _DAY


def is_running(pid: int) -> bool:
    """Whether there is such a process on this machine."""
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


def refusal(what: str, path: Path, error: OSError | NotImplementedError) -> DurabilityError:
    """The disk's refusal as a message for people."""
    reason = getattr(error, "strerror", None) or str(error)
    advice = _ADVICE.get(getattr(error, "errno", None) or 0, "Choose another folder")
    return DurabilityError(f"cannot {what} {path}: {reason}. {advice}, then try again.")


def _create(path: Path, mode: int) -> FileIO:
    return FileIO(path, "xb", opener=lambda name, flags: os.open(name, flags, mode))


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


def _make_folder(path: Path, mode: int) -> None:
    path.mkdir(mode, exist_ok=True)


def _remove(path: Path) -> None:
    path.unlink()


def _remove_folder(path: Path) -> None:
    path.rmdir()
