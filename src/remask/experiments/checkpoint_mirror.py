"""Checkpoints in an object store: a folder of this machine, and a copy of it behind an address.

What is read back is checked as any checkpoint is, byte by byte, so a copy that was cut short is
recognised, and the one before it is taken.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from remask.engine.checkpoints import checkpoints_in, is_checkpoint
from remask.errors import MissingPackageError, SettingsError
from remask.files import DurabilityError, make_folder, write_atomically

_KEPT = 2
_PACKAGES = {"s3": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "az": "adlfs"}


def is_address(place: str) -> bool:
    """Whether this is the address of an object store, `s3://...`, rather than a folder."""
    return "://" in place


class CheckpointMirror:
    """The copy of a checkpoint folder at an address that fsspec understands."""

    def __init__(self, address: str) -> None:
        self._address = address
        kind = address.partition(":")[0]
        try:
            self._files, self._path = import_module("fsspec").url_to_fs(address)
        except ImportError:
            package = _PACKAGES.get(kind, "fsspec")
            raise MissingPackageError(
                f"checkpoints at {address} need a package that is not installed: pip install "
                f"{package}, on this machine and on every node"
            ) from None
        except ValueError as error:
            raise SettingsError(f"checkpoints = {address!r}: {error}") from None

    def fetch(self, folder: Path) -> None:
        """Copy the newest checkpoints into a folder."""
        make_folder(folder)
        for name in sorted(self._names())[-_KEPT:]:
            with self._explained("read"):
                content = self._files.cat_file(f"{self._path}/{name}")
            write_atomically(folder / name, content, private=True)

    def push(self, folder: Path) -> None:
        """Make the copy like the folder: first what is new is written, then what is old goes."""
        there = self._names()
        here = {path.name: path for path in checkpoints_in(folder).values()}
        with self._explained("write"):
            self._files.makedirs(self._path, exist_ok=True)
            for name in sorted(here.keys() - there):
                self._files.pipe_file(f"{self._path}/{name}", here[name].read_bytes())
        with self._explained("remove"):
            for name in there - here.keys():
                self._files.rm_file(f"{self._path}/{name}")

    def remove(self) -> None:
        """Remove the copy."""
        with self._explained("remove"):
            if self._files.exists(self._path):
                self._files.rm(self._path, recursive=True)

    def _names(self) -> set[str]:
        with self._explained("list"):
            self._files.invalidate_cache()  # another machine may have written
            if not self._files.exists(self._path):
                return set()
            paths = self._files.ls(self._path, detail=False)
        names = (str(path).rpartition("/")[2] for path in paths)
        return {name for name in names if is_checkpoint(name)}

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # each kind of store has errors of its own
            raise DurabilityError(
                f"cannot {what} checkpoints at {self._address}: {type(error).__name__}: {error}. "
                f"Check the address and your access to it, then try again."
            ) from error
