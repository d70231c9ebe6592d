"""Temporary folders that do not outlive their process by long, however it ends."""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "remask-stack-"
_SECONDS_TO_LOCK = 60.0
"""A folder that is younger may belong to a process that has not locked it yet."""


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A temporary folder while in the block; also removes the folders of processes that died."""
    _remove_abandoned(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as made:
        folder = Path(made).resolve()
        lock = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder
        finally:
            os.close(lock)


def _remove_abandoned(parent: Path) -> None:
    """Remove scratch folders of this user that no process has locked.

    The operating system frees the lock of a process that dies, in any container.
    """
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # another process removes it, or it is locked
            there = folder.lstat()
            is_new = time.time() - there.st_mtime < _SECONDS_TO_LOCK
            if is_new or there.st_uid != os.getuid():
                continue
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(lock)
