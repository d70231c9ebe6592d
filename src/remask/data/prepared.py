"""Datasets that are prepared once from their published files, as arrays on disk.

Each array is a .npy file of bytes. The manifest lists them with their checksums and is written
last, so an interrupted preparation never counts as finished. Every preparation uses new file names,
so the previous one stays complete until its manifest is replaced.
"""

import hashlib
import io
import json
import math
import os
import re
import secrets
import time
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from remask import files
from remask.data.dataset import Arrays, Dataset, FileStatus, check_file, is_there
from remask.data.downloads import NothingThereError, Progress, SourceError, WrongContentsError
from remask.data.sources import FileSource, LocalSource, Originals, Version
from remask.errors import DataError
from remask.files import Lock

_MANIFEST, _STAMPS = "manifest.json", ".verified.json"
_ARRAYS = ("train_images", "train_labels", "test_images", "test_labels")
_ARRAY_FILE = re.compile(r"[a-z_]+\.[0-9a-f]{16}\.npy")
_FORMAT = 1
_MAX_BYTES = 1 << 16
_TICK = 0.02  # seconds; the clocks of file systems are finer
# Longer than the slowest preparation: a waiting process needs the data.
_PATIENCE = 60 * 60.0

Shape = tuple[int, ...]


class _ArrayFile(NamedTuple):
    """An array in the manifest."""

    file: str
    sha256: str
    size: int


@dataclass(frozen=True, kw_only=True)
class PreparedDataset(Dataset):
    """A dataset that is prepared from its published files and cached as arrays."""

    versions: tuple[Version, ...]
    """The forms in which users may have it; the first is the published one."""
    sources: tuple[FileSource, ...] = ()
    """To be tried in this order."""

    @abstractmethod
    def arrays(self, originals: Originals) -> Iterator[tuple[str, Shape, Iterable[bytes]]]:
        """Yield each array's name, shape and bytes, in pieces, to be consumed before the next one.

        Raises SourceError.
        """

    def differences(self, arrays: Arrays) -> Iterator[tuple[str, str, str]]:
        """Compare with published checksums: (array, expected, found) where they differ."""
        return iter(())

    def check(self, folder: Path, *, rehash: bool) -> list[FileStatus]:
        """Compare arrays with the manifest and, with `rehash`, the published checksums.

        Without `rehash`, a file that is unchanged since its last check is not read again.
        """
        path, expected = folder / _MANIFEST, "the list of the prepared arrays"
        try:
            manifest = self._manifest(folder)
        except ValueError as error:
            return [FileStatus(path, "damaged", expected, str(error))]
        if not manifest:
            return [FileStatus(path, "missing", expected, "no file")]
        statuses = _check_arrays(folder, manifest.values(), rehash=rehash)
        if rehash and all(status.state == "ok" for status in statuses):
            for array, published, found in self.differences(self.read(folder)):
                damaged = folder / manifest[array].file
                statuses.append(FileStatus(damaged, "damaged", published, found))
        return statuses

    def read(self, folder: Path) -> Arrays:
        """Map the arrays into memory, uint8, copy on write."""
        try:
            return {
                name: np.load(folder / entry.file, mmap_mode="c", allow_pickle=False)
                for name, entry in self._manifest(folder).items()
            }
        except (OSError, ValueError) as error:
            raise DataError(f"cannot map the arrays in {folder}: {error}") from error

    def prepare(self, folder: Path, *, given: Path | None, force: bool, progress: Progress) -> None:
        """Prepare the arrays unless another process has done so; see `fetch`."""
        self.versions[0].require()
        try:
            files.make_folder(folder)
            with Lock(folder / ".lock", timeout=_PATIENCE):
                files.remove_stale_temporaries(folder)
                if force or not is_there(self, folder):
                    self._fill(folder, given, progress)
        except OSError as error:
            reason = error.__cause__ if isinstance(error.__cause__, OSError) else error
            raise DataError(
                f"cannot write to {folder}: {reason.strerror or reason}. Free some space, fix the "
                f"permissions, or set REMASK_DATA to another folder."
            ) from error

    def _fill(self, folder: Path, given: Path | None, progress: Progress) -> None:
        """Prepare the dataset from the user's path or, without one, the folder and the sources."""
        local = LocalSource(given or folder, self.versions)
        failures: list[str] = []
        for source in (local, *(self.sources if given is None else ())):
            try:
                self._take(source, folder, progress)
            except SourceError as error:
                if given is not None or (source is local and isinstance(error, WrongContentsError)):
                    raise DataError(
                        f"cannot take {self.name} from {source}: {error}. Replace it, or remove it "
                        f"to download {self.name}."
                    ) from error
                if not isinstance(error, NothingThereError):
                    failures.append(f"  {source}: {error}")
            else:
                _remove_parts(folder)
                return
        tried = "\n".join(failures) or "  no sources"
        raise DataError(
            f"could not get {self.name}; tried:\n{tried}\n"
            f"To supply it by hand, put\n{self.versions[0].instructions}\ninto\n{folder}\n"
            f"and run the same command again (REMASK_DATA sets another folder), or pass its path\n"
            f"as --data (in Python, data=)."
        )

    def _take(self, source: FileSource, folder: Path, progress: Progress) -> None:
        """Prepare the dataset from a source.

        A partial download may be of another file: if resuming it gives wrong contents, start over.
        """
        resumed = any(folder.glob("*.part"))
        try:
            with source.originals(folder, progress) as originals:
                self.store(originals, source, folder, progress)
        except WrongContentsError:
            _remove_parts(folder)
            if not resumed:
                raise
            self._take(source, folder, progress)

    def store(
        self, originals: Originals, source: FileSource, folder: Path, progress: Progress
    ) -> None:
        """Write all arrays and then the manifest."""
        token = secrets.token_hex(8)
        try:
            arrays = {
                name: self._write(folder / f"{name}.{token}.npy", shape, pieces, progress)._asdict()
                for name, shape, pieces in self.arrays(originals)
            }
            manifest = {"format": _FORMAT, "dataset": self.name, "source": str(source)}
            text = json.dumps({**manifest, "arrays": arrays}, indent=2)
            files.write_atomically(folder / _MANIFEST, text.encode())
        finally:
            self._remove_unlisted(folder)

    def _write(
        self, path: Path, shape: Shape, pieces: Iterable[bytes], progress: Progress
    ) -> _ArrayFile:
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            header, {"descr": "|u1", "fortran_order": False, "shape": shape}
        )
        total = len(header.getvalue()) + math.prod(shape)
        digest, size = hashlib.sha256(), 0

        def hashed() -> Iterator[bytes]:
            nonlocal size
            for piece in chain([header.getvalue()], pieces):
                digest.update(piece)
                size += len(piece)
                yield piece
                progress(f"{self.name} {path.name.partition('.')[0]}", size, total)

        files.write_atomically(path, hashed())
        assert size == total, "the pieces fill the shape"
        return _ArrayFile(path.name, digest.hexdigest(), size)

    def _manifest(self, folder: Path) -> dict[str, _ArrayFile]:
        """Return the prepared arrays by name. Raises ValueError for a damaged manifest."""
        try:
            manifest = json.loads(files.read_limited(folder / _MANIFEST, _MAX_BYTES))
            if (manifest["format"], manifest["dataset"]) != (_FORMAT, self.name):
                raise ValueError("it describes something else")
            found = {}
            for part in _ARRAYS:
                entry = manifest["arrays"][part]
                # The name becomes a path, so it must not lead elsewhere.
                if not _ARRAY_FILE.fullmatch(entry["file"]):
                    raise ValueError(f"{entry['file']!r} is not the name of an array")
                found[part] = _ArrayFile(entry["file"], entry["sha256"], entry["size"])
            return found
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(str(error)) from error

    def _remove_unlisted(self, folder: Path) -> None:
        """Remove the arrays of failed and of replaced preparations."""
        with suppress(ValueError):
            listed = {entry.file for entry in self._manifest(folder).values()}
            for path in folder.glob("*.npy"):
                if path.name not in listed and _ARRAY_FILE.fullmatch(path.name):
                    files.remove_quietly(path)


def _check_arrays(folder: Path, entries: Iterable[_ArrayFile], *, rehash: bool) -> list[FileStatus]:
    """Check array files, and remember the size, times and inode of those that are correct."""
    known = _read_stamps(folder / _STAMPS)
    stamps, statuses = {}, []
    for entry in entries:
        path = folder / entry.file
        stamp = _stamp(path, entry)
        if not rehash and stamp is not None and known.get(entry.file) == stamp:
            status = FileStatus(path, "ok", "", "")
        else:
            status = check_file(path, entry.sha256, entry.size)
        if status.state == "ok" and stamp == _stamp(path, entry):
            stamps[entry.file] = stamp
        statuses.append(status)
    if stamps != known:
        with suppress(OSError):  # in a read-only folder, files are read every time
            files.write_atomically(folder / _STAMPS, json.dumps(stamps, indent=1).encode())
    return statuses


def _stamp(path: Path, entry: _ArrayFile) -> list[int | str] | None:
    """Identify the contents of a file; any later change alters the stamp."""
    try:
        if 0 <= time.time() - path.stat().st_ctime < _TICK:
            time.sleep(_TICK)  # a change within the same tick of the clock would not show
        found = path.stat()
    except OSError:
        return None
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, entry.sha256]


def _read_stamps(path: Path) -> dict[str, Any]:
    """Return the stamps that this user made; anyone else's prove nothing."""
    try:
        if path.stat().st_uid != os.geteuid():
            return {}
        stamps = json.loads(files.read_limited(path, _MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return stamps if isinstance(stamps, dict) else {}


def _remove_parts(folder: Path) -> None:
    for part in folder.glob("*.part"):
        files.remove_quietly(part)
