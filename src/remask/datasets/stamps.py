"""Checking files against their checksums, and remembering which have been checked.

Beside the files lie stamps: this user read all of a file of this size, inode and times, and it had
this checksum. A file that still has all of these is not read again. A stamp proves no more than
that: anyone who can write to the folder as this user can forge one.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from remask import durable
from remask.datasets.files import DataFile, FileStatus

_STAMPS = ".verified.json"
_MAX_BYTES = 1 << 16
_TICK = 0.02  # seconds; the clocks of file systems are finer


def check_files(
    folder: Path, files: Iterable[DataFile], *, rehash: bool = False
) -> list[FileStatus]:
    """Compare files with what they should be, reading those without a stamp, or all if `rehash`."""
    known = _read(folder / _STAMPS)
    stamps: dict[str, Any] = {}
    statuses = []
    for file in files:
        path = folder / file.name
        if not rehash and file.name in known and known[file.name] == _stamp(path, file):
            status, stamps[file.name] = _ok(path, file), known[file.name]
        else:
            before = _stamp_when_settled(path, file)
            status = check_file(path, file)
            if status.state == "ok" and before == _stamp(path, file):
                stamps[file.name] = before
        statuses.append(status)
    if stamps != known:
        with suppress(OSError):  # in a folder that cannot be written, files are read every time
            durable.write_atomically(folder / _STAMPS, json.dumps(stamps, indent=1).encode())
    return statuses


def check_file(path: Path, file: DataFile) -> FileStatus:
    """Compare a file with what it should be, reading all of it."""
    try:
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            found = DataFile(file.name, digest, stream.tell())
    except (FileNotFoundError, NotADirectoryError):
        return FileStatus(file, path, "missing", file.contents, "no file")
    except OSError as error:
        unreadable = f"a file that cannot be read: {error.strerror}"
        return FileStatus(file, path, "damaged", file.contents, unreadable)
    if found != file:
        return FileStatus(file, path, "damaged", file.contents, found.contents)
    return _ok(path, file)


def _ok(path: Path, file: DataFile) -> FileStatus:
    return FileStatus(file, path, "ok", file.contents, file.contents)


def _stamp(path: Path, file: DataFile) -> dict[str, int | str] | None:
    """What is stamped if the file is what it should be; None if it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return {
        "size": found.st_size,
        "mtime_ns": found.st_mtime_ns,
        "ctime_ns": found.st_ctime_ns,
        "inode": found.st_ino,
        "sha256": file.sha256,
    }


def _stamp_when_settled(path: Path, file: DataFile) -> dict[str, int | str] | None:
    """The stamp of a file that any later change will alter.

    One that came within the same tick of the clock as the last would not show in its times.
    """
    with suppress(OSError):
        if 0 <= time.time() - path.stat().st_ctime < _TICK:
            time.sleep(_TICK)
    return _stamp(path, file)


def _read(path: Path) -> dict[str, Any]:
    """The stamps that this user has made; none if they cannot be read."""
    try:
        if hasattr(os, "geteuid") and path.stat().st_uid != os.geteuid():
            return {}
        stamps = json.loads(durable.read_limited(path, _MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return stamps if isinstance(stamps, dict) else {}
