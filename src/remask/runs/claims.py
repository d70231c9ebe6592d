"""Claims on trials, so that two runs do not compute the same one."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from remask.durable import DurabilityError, make_folder

if sys.platform != "win32":
    import fcntl

_DIGITS = 15
"""So many hexadecimal digits of a hash are a place in a file, and no two trials share one."""
_IN_USE = 16**_DIGITS
"""The place, behind all others, that everybody who uses the file has a shared lock on."""


class Claims:
    """Claims on trials by their hashes, which hold between processes.

    A claim is a lock on one byte of a file that stays empty. The operating system frees the claims
    of a process that dies, however it dies; where it has no such locks, every claim is granted.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Self:
        make_folder(self._path.parent)
        try:
            while not self._open():
                pass
        except OSError as error:
            raise DurabilityError(
                f"cannot open {self._path}: {error.strerror}. Mend its permissions, or remove it "
                f"while nothing runs."
            ) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if sys.platform != "win32":
            with suppress(OSError):  # others use it: the last of them removes it
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _IN_USE)
                self._path.unlink()
        os.close(self._file)  # which frees all of them

    def _open(self) -> bool:
        """Open the file; False if its last user has removed it meanwhile."""
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        if sys.platform == "win32":
            return True
        fcntl.lockf(self._file, fcntl.LOCK_SH, 1, _IN_USE)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(self._file), self._path.stat()):
                return True
        os.close(self._file)
        return False

    def take(self, config_hash: str) -> bool:
        """Claim a trial; False if another process has."""
        if sys.platform == "win32":
            return True
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _place(config_hash))
        except (BlockingIOError, PermissionError):  # either, says POSIX
            return False
        except OSError as error:
            raise DurabilityError(
                f"cannot lock {self._path}: {error.strerror}. Choose a store on a file system that "
                f"has locks."
            ) from error
        return True

    def free(self, config_hash: str) -> None:
        """Give a claim back."""
        if sys.platform != "win32":
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _place(config_hash))


def _place(config_hash: str) -> int:
    return int(config_hash[:_DIGITS], 16)
