"""Files that a user names, written without destroying something else.

Refused are files that the same command uses, databases, and remask's own files.
"""

import errno
import os
import re
import stat
import sys
from collections.abc import Iterable, Sequence
from io import FileIO
from pathlib import Path

from remask.files import DurabilityError, open_regular, refusal, write_all, write_atomically

_BEGINNINGS = {
    re.compile(mark, re.DOTALL): kind
    for mark, kind in (
        (rb"SQLite format 3\0", "an SQLite database, such as a results store"),
        (rb'.{8}\{"__metadata__":\{"remask":"[0-9a-f]{64}', "a checkpoint"),
        (rb'\{\s*"format":.{1,40}"sha256":\s*"[0-9a-f]{64}",\s*"content":', "a learner's manifest"),
    )
}
"""The first bytes of files that no output may replace."""


def write_output(path: Path, data: bytes | Iterable[bytes], in_use: Sequence[Path] = ()) -> None:
    """Write a file that a user named, if `check_output` allows it.

    A regular file is replaced atomically and keeps its mode; a symbolic link stays one. Pipes,
    devices and the standard output of this process are written into.
    """
    there = check_output(path, in_use)
    # Replacing the file behind /dev/stdout would remove what was printed before.
    own = None if there is None else next((n for n in (1, 2) if _is_open_as(n, there)), None)
    if there is None or (own is None and stat.S_ISREG(there.st_mode)):
        write_atomically(path.resolve(), data, like=there)
        return
    sys.stdout.flush()
    try:
        with FileIO(path if own is None else own, "wb", closefd=own is None) as stream:
            write_all(stream, data)
    except OSError as error:
        if own is not None and isinstance(error, BrokenPipeError):
            raise  # as for print
        raise refusal("write", path, error) from error


def check_output(path: Path, in_use: Sequence[Path] = ()) -> os.stat_result | None:
    """Refuse a file that `write_output` would refuse, before hours are spent on its contents.

    Refused are folders, the files `in_use` that the caller reads, databases, and remask's own
    files. Returns the status of the existing file, or None.
    """
    try:
        there = path.stat()
        if stat.S_ISDIR(there.st_mode):
            raise OSError(errno.EISDIR, "it is a folder")
    except FileNotFoundError:
        there = None
        if not path.resolve().parent.is_dir():
            raise refusal("write", path, OSError(errno.ENOENT, "no such folder")) from None
    except OSError as error:
        raise refusal("write", path, error) from error
    if (kept := _kept_as(path, there, [file.resolve() for file in in_use])) is not None:
        raise DurabilityError(f"{path} is {kept}. It was not changed. Name another file.")
    return there


def _kept_as(path: Path, there: os.stat_result | None, used: Sequence[Path]) -> str | None:
    """Describe a file that no output may replace; None for any other."""
    if path.resolve() in used:
        return "read or written by the same command"
    if path.suffix in (".safetensors", ".npy") and _begins_as(path.with_name("learner.json")):
        return "in the folder of a learner"
    return _begins_as(path) if there is not None and stat.S_ISREG(there.st_mode) else None


def _begins_as(path: Path) -> str | None:
    """Describe a file to keep by its first bytes; None for any other."""
    try:
        with open_regular(path) as stream:
            beginning = stream.read(512)
    except PermissionError:
        return "not readable, so its content is unknown"
    except OSError:
        return None
    return next((kind for mark, kind in _BEGINNINGS.items() if mark.match(beginning)), None)


def _is_open_as(descriptor: int, there: os.stat_result) -> bool:
    try:
        return os.path.samestat(there, os.fstat(descriptor))
    except OSError:  # it is closed
        return False
