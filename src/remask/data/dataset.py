"""The description of a dataset, and its arrays on disk.

The published files are converted once to uint8 arrays, each a .npy file, which are mapped into
memory from then on. The manifest lists the arrays with their checksums and is written last, so an
interrupted preparation never counts as finished. Every preparation uses new file names, so the
previous one stays complete until its manifest is replaced.
"""

import hashlib
import io
import json
import math
import os
import re
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from remask import files
from remask.data.originals import (
    DataError,
    NothingThereError,
    Originals,
    Progress,
    SourceError,
    WrongContentsError,
    users_path,
)
from remask.data.sources import FileSource, LocalSource, Version
from remask.files import AnyPath, Lock

_MANIFEST, _STAMPS = "manifest.json", ".verified.json"
_TICK = 0.02  # seconds; the clocks of file systems are finer
_ARRAY_FILE = re.compile(r"[a-z_]+\.[0-9a-f]{16}\.npy")
_FORMAT = 1
_MAX_BYTES = 1 << 16

Arrays = Mapping[str, npt.NDArray[np.uint8]]
"""train_images, train_labels, test_images, test_labels."""
Shape = tuple[int, ...]


@dataclass(frozen=True)
class FileStatus:
    """A file of a dataset, compared with what it should contain."""

    path: Path
    state: Literal["ok", "missing", "damaged"]
    expected: str
    found: str


class _ArrayFile(NamedTuple):
    """A line of the manifest."""

    file: str
    sha256: str
    size: int
    shape: Shape


@dataclass(frozen=True, kw_only=True)
class Dataset(ABC):
    """A dataset with a name."""

    name: str
    summary: str
    """One line for listings."""
    class_names: tuple[str, ...]
    """By label."""
    packaged_in: Path | None = None
    """The folder inside the installed package, if it ships with remask."""

    @abstractmethod
    def check(self, folder: Path, *, rehash: bool) -> list[FileStatus]:
        """Check the files in the folder; with `rehash`, read all of them."""

    @abstractmethod
    def read(self, folder: Path) -> Arrays:
        """Return the arrays; labels are [N] or [N, levels], the finest last."""


def check_file(path: Path, sha256: str, size: int) -> FileStatus:
    """Compare a file with its checksum, reading all of it."""
    expected = f"{size} bytes, sha256 {sha256}"
    try:
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            found = f"{stream.tell()} bytes, sha256 {digest}"
    except (FileNotFoundError, NotADirectoryError):
        return FileStatus(path, "missing", expected, "no file")
    except OSError as error:
        return FileStatus(path, "damaged", expected, f"cannot be read: {error.strerror}")
    return FileStatus(path, "ok" if found == expected else "damaged", expected, found)


@dataclass(frozen=True, kw_only=True)
class PreparedDataset(Dataset):
    """A dataset that is prepared from its published files and cached as arrays."""

    versions: tuple[Version, ...]
    """The forms in which users may have it; the first is the published one."""
    sources: tuple[FileSource, ...] = ()
    """To be tried in this order."""
    require: Callable[[], object] = lambda: None
    """Raises DataError if a package that preparing needs is not installed."""

    @abstractmethod
    def shapes(self) -> dict[str, Shape]:
        """Return the name and shape of every array."""

    @abstractmethod
    def arrays(self, originals: Originals) -> Iterator[tuple[str, Iterable[bytes]]]:
        """Yield each array's name and bytes, in pieces, to be consumed before the next one.

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
        if manifest is None:
            return [FileStatus(path, "missing", expected, "no file")]
        statuses = _check_arrays(folder, manifest.values(), rehash=rehash)
        if rehash and all(status.state == "ok" for status in statuses):
            for array, published, found in self.differences(self.read(folder)):
                damaged = folder / manifest[array].file
                statuses.append(FileStatus(damaged, "damaged", published, found))
        return statuses

    def store(
        self, originals: Originals, source: FileSource, folder: Path, progress: Progress
    ) -> None:
        """Write all arrays and then the manifest."""
        token = secrets.token_hex(8)
        try:
            arrays = {
                name: self._write(name, pieces, f"{name}.{token}.npy", folder, progress)._asdict()
                for name, pieces in self.arrays(originals)
            }
            manifest = {
                "format": _FORMAT,
                "dataset": self.name,
                "source": str(source),
                "arrays": arrays,
            }
            files.write_atomically(folder / _MANIFEST, json.dumps(manifest, indent=2).encode())
        finally:
            self._remove_unlisted(folder)

    def read(self, folder: Path) -> Arrays:
        """Map the arrays into memory, uint8, copy on write."""
        arrays = {}
        for name, entry in (self._manifest(folder) or {}).items():
            path = folder / entry.file
            try:
                array = np.load(path, mmap_mode="c", allow_pickle=False)
            except (OSError, ValueError) as error:
                raise DataError(f"cannot map {path}: {error}") from error
            if array.dtype != np.uint8 or array.shape != entry.shape:
                raise DataError(
                    f"{path} holds {array.dtype} {list(array.shape)}, not {entry.shape}"
                )
            arrays[name] = array
        return arrays

    def _write(
        self, name: str, pieces: Iterable[bytes], file: str, folder: Path, progress: Progress
    ) -> _ArrayFile:
        shape = self.shapes()[name]
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            header, {"descr": "|u1", "fortran_order": False, "shape": shape}
        )
        total = len(header.getvalue()) + math.prod(shape)
        digest, size = hashlib.sha256(header.getvalue()), len(header.getvalue())

        def hashed() -> Iterator[bytes]:
            nonlocal size
            yield header.getvalue()
            for piece in pieces:
                digest.update(piece)
                size += len(piece)
                yield piece
                progress(f"{self.name} {name}", size, total)

        files.write_atomically(folder / file, hashed())
        assert size == total, "the pieces fill the shape"
        return _ArrayFile(file, digest.hexdigest(), size, shape)

    def _manifest(self, folder: Path) -> dict[str, _ArrayFile] | None:
        """Return the prepared arrays by name, or None. Raises ValueError for a damaged manifest."""
        try:
            manifest = json.loads(files.read_limited(folder / _MANIFEST, _MAX_BYTES))
            if (manifest["format"], manifest["dataset"]) != (_FORMAT, self.name):
                raise ValueError("it describes something else")
            arrays = manifest["arrays"]
            return {name: _entry(arrays[name], shape) for name, shape in self.shapes().items()}
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(str(error)) from error

    def _remove_unlisted(self, folder: Path) -> None:
        """Remove the arrays of failed and of replaced preparations."""
        try:
            listed = {entry.file for entry in (self._manifest(folder) or {}).values()}
        except ValueError:
            return
        for path in folder.glob("*.npy"):
            if path.name not in listed and _ARRAY_FILE.fullmatch(path.name):
                files.remove_quietly(path)


def _entry(entry: Any, shape: Shape) -> _ArrayFile:
    match entry:
        case {"file": str(file), "sha256": str(sha256), "size": int(size), "shape": list(found)}:
            # The name becomes a path, so it must not lead elsewhere.
            if _ARRAY_FILE.fullmatch(file) and tuple(found) == shape:
                return _ArrayFile(file, sha256, size, shape)
    raise ValueError(f"no array of shape {list(shape)} in {str(entry)[:200]}")


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


# Longer than the slowest preparation: a waiting process needs the data.
_PATIENCE = 60 * 60.0


def where(dataset: Dataset) -> Path:
    """Return the folder of the dataset, which may not exist yet."""
    return dataset.packaged_in or data_folder() / dataset.name


def verify(dataset: Dataset) -> list[FileStatus]:
    """Compare every file of the dataset with its checksum, reading all of it."""
    return dataset.check(where(dataset), rehash=True)


def is_complete(dataset: Dataset) -> bool:
    """Whether the dataset is cached and undamaged; verified files are not read again."""
    return all(status.state == "ok" for status in dataset.check(where(dataset), rehash=False))


def fetch(
    dataset: Dataset,
    *,
    force: bool = False,
    progress: Progress | None = None,
    data: AnyPath | None = None,
) -> Path:
    """Make sure that the dataset is cached and undamaged, and return its folder.

    `force` replaces it once its successor is verified. Without it a damaged file is reported and
    left alone. With `data`, a folder or archive that the user has, the dataset is taken only from
    there. If several processes fetch at the same time, one does, and the others wait. Raises
    DataError.
    """
    folder = where(dataset)
    given = None if data is None else _given(dataset, data)
    if not isinstance(dataset, PreparedDataset):
        _is_there(dataset, folder)
        return folder
    if not force and _is_there(dataset, folder):
        return folder
    dataset.require()
    try:
        files.make_folder(folder)
        with Lock(folder / ".lock", timeout=_PATIENCE):
            files.remove_stale_temporaries(folder)
            # Another process may have fetched it while this one waited.
            if force or not _is_there(dataset, folder):
                _fill(dataset, folder, given, progress or (lambda name, done, total: None))
    except OSError as error:
        reason = error.__cause__ if isinstance(error.__cause__, OSError) else error
        raise DataError(
            f"cannot write to {folder}: {reason.strerror or reason}. Free some space, fix the "
            f"permissions, or set REMASK_DATA to another folder."
        ) from error
    return folder


def load(dataset: Dataset, data: AnyPath | None = None) -> Arrays:
    """Fetch the dataset if needed, and map its arrays: images [N, C, H, W] and labels [N], uint8.

    Processes share one copy, and writing to the arrays does not change the files. Raises DataError.
    """
    arrays = dataset.read(fetch(dataset, data=data))
    return {
        name: array.reshape(len(array), -1)[:, -1] if name.endswith("labels") else array
        for name, array in arrays.items()
    }


def _is_there(dataset: Dataset, folder: Path) -> bool:
    """Whether all files are there. Raises DataError for a damaged one."""
    statuses = dataset.check(folder, rehash=False)
    for status in statuses:
        if status.state == "damaged" or (status.state == "missing" and dataset.packaged_in):
            remedy = f"`remask data fetch {dataset.name} --force` replaces it."
            if dataset.packaged_in:
                remedy = "Install remask again to restore it."
            raise DataError(
                f"{status.path} is {status.state}.\n  expected: {status.expected}\n"
                f"  found:    {status.found}\n{remedy}"
            )
    return all(status.state == "ok" for status in statuses)


def _fill(dataset: PreparedDataset, folder: Path, given: Path | None, progress: Progress) -> None:
    supplied = LocalSource(given or folder, dataset.versions)
    failures: list[str] = []
    for source in (supplied, *(dataset.sources if given is None else ())):
        try:
            _take(dataset, source, folder, progress)
        except SourceError as error:
            if given is not None or (source is supplied and isinstance(error, WrongContentsError)):
                raise DataError(
                    f"cannot take {dataset.name} from {source}: {error}. Replace it, or remove it "
                    f"to download {dataset.name}."
                ) from error
            if not isinstance(error, NothingThereError):
                failures.append(f"  {source}: {error}")
        else:
            _remove_parts(folder)
            return
    tried = "\n".join(failures) or "  no sources"
    raise DataError(
        f"could not get {dataset.name}; tried:\n{tried}\n"
        f"To supply it by hand, put\n{dataset.versions[0].instructions}\ninto\n{folder}\n"
        f"and run the same command again (REMASK_DATA sets another folder), or pass its path\n"
        f"as --data (in Python, data=)."
    )


def _take(dataset: PreparedDataset, source: FileSource, folder: Path, progress: Progress) -> None:
    """Prepare the dataset from a source.

    A partial download may be of another file: if resuming it gives wrong contents, start over.
    """
    resumed = any(folder.glob("*.part"))
    try:
        with source.originals(folder, progress) as originals:
            dataset.store(originals, source, folder, progress)
    except WrongContentsError:
        _remove_parts(folder)
        if not resumed:
            raise
        _take(dataset, source, folder, progress)


def _remove_parts(folder: Path) -> None:
    for part in folder.glob("*.part"):
        files.remove_quietly(part)


def _given(dataset: Dataset, data: AnyPath) -> Path:
    """Check the path even if the cache has the data."""
    if dataset.packaged_in is not None:
        raise DataError(f"{dataset.name} ships with remask: leave the path of its data out")
    path = users_path(data).absolute()
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DataError(f"{path} does not exist: cannot take {dataset.name} from it") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    return path


def data_folder() -> Path:
    """Return the folder of the datasets' folders."""
    chosen = os.environ.get("REMASK_DATA")
    return users_path(chosen).absolute() if chosen else cache_folder()


def cache_folder() -> Path:
    """Return the folder for files that can be recreated."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says to ignore a relative path.
    if Path(cache).is_absolute():
        return Path(cache) / "remask"
    try:
        return Path.home() / ".cache" / "remask"
    except RuntimeError as error:
        raise DataError("no home folder to keep data in; set REMASK_DATA to a folder") from error
