"""Datasets: fetched when needed, checked, cached as arrays, and mapped into memory.

A dataset has its own folder in `$REMASK_DATA`, else `$XDG_CACHE_HOME/remask`, else
`~/.cache/remask`. Each array is a .npy file of bytes. The manifest lists them with their checksums
and is written last, so an interrupted preparation never counts as finished. Every preparation uses
new file names, so the previous one stays complete until its manifest is replaced.
"""

import hashlib
import importlib.resources
import io
import math
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field, ValidationError

from remask import files
from remask.data.sources import (
    NothingThereError,
    Progress,
    ReadFile,
    Source,
    SourceError,
    WrongContentsError,
    opened,
    users_path,
)
from remask.errors import DataError, describe_errors
from remask.files import AnyPath, Lock

Arrays = Mapping[str, npt.NDArray[np.uint8]]
"""train_images, train_labels, test_images, test_labels."""
_ARRAYS = ("train_images", "train_labels", "test_images", "test_labels")
_MANIFEST, _MAX_BYTES = "manifest.json", 1 << 16
# Longer than the slowest preparation: a waiting process needs the data.
_PATIENCE = 60 * 60.0


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A dataset with a name: images [N, C, H, W] and labels [N, 1] for training and testing."""

    name: str
    summary: str
    """One line for listings."""
    class_names: tuple[str, ...]
    """By label."""
    sources: tuple[Source, ...] = ()
    """To be tried in this order. Users may have the dataset in the form of any of them."""
    checksums: tuple[str, ...] = ()
    """SHA-256 of the array files, in the order of the arrays; empty if unknown."""
    packaged: bool = False
    """Whether it ships with remask."""


@dataclass(frozen=True)
class FileStatus:
    """A file of a dataset, compared with what it should contain."""

    path: Path
    state: Literal["ok", "missing", "damaged"]
    expected: str
    found: str


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


def where(dataset: Dataset) -> Path:
    """Return the folder of the dataset, which may not exist yet."""
    if dataset.packaged:
        return Path(str(importlib.resources.files("remask.data") / "files" / dataset.name))
    return data_folder() / dataset.name


def check(dataset: Dataset, *, rehash: bool = True) -> list[FileStatus]:
    """Compare every file of the dataset with its checksum.

    Without `rehash`, a file that has not been modified since it was written is not read.
    """
    folder, expected = where(dataset), "the list of the prepared arrays"
    try:
        arrays = _prepared(dataset)
    except ValueError as error:
        return [FileStatus(folder / _MANIFEST, "damaged", expected, str(error))]
    if not arrays:
        return [FileStatus(folder / _MANIFEST, "missing", expected, "no file")]
    return [_check_file(folder / array.file, array, rehash) for array in arrays.values()]


def _check_file(path: Path, array: "_ArrayFile", rehash: bool) -> FileStatus:
    expected = f"{array.size} bytes, sha256 {array.sha256}"
    try:
        with path.open("rb") as stream:
            stat = os.fstat(stream.fileno())
            if not rehash and (stat.st_size, stat.st_mtime_ns) == (array.size, array.time):
                return FileStatus(path, "ok", expected, expected)
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            found = f"{stream.tell()} bytes, sha256 {digest}"
    except (FileNotFoundError, NotADirectoryError):
        return FileStatus(path, "missing", expected, "no file")
    except OSError as error:
        return FileStatus(path, "damaged", expected, f"cannot be read: {error.strerror}")
    return FileStatus(path, "ok" if found == expected else "damaged", expected, found)


class _ArrayFile(BaseModel):
    """An array in a manifest."""

    file: str = Field(pattern=r"^[a-z_]+(\.[0-9a-f]{16})?\.npy$")  # it must not lead elsewhere
    sha256: str
    size: int
    time: int | None = None
    """The time of the file's last change, in ns; None: not known."""


class _Manifest(BaseModel):
    """A prepared dataset."""

    format: Literal[1] = 1
    dataset: str
    source: str
    arrays: dict[str, _ArrayFile]


def _prepared(dataset: Dataset) -> dict[str, _ArrayFile]:
    """Return the files of the arrays; empty without a manifest. Raises ValueError if damaged."""
    try:
        content = files.read_limited(where(dataset) / _MANIFEST, _MAX_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise ValueError(str(error)) from error
    try:
        manifest = _Manifest.model_validate_json(content)
    except ValidationError as error:
        raise ValueError(describe_errors(error)) from error
    if manifest.dataset != dataset.name or manifest.arrays.keys() != {*_ARRAYS}:
        raise ValueError("it describes something else")
    known = dict(zip(_ARRAYS, dataset.checksums, strict=False))
    return {
        name: array.model_copy(update={"sha256": known.get(name, array.sha256)})
        for name, array in manifest.arrays.items()
    }


def is_complete(dataset: Dataset) -> bool:
    """Whether the dataset is cached and undamaged."""
    return all(status.state == "ok" for status in check(dataset, rehash=False))


def load(dataset: Dataset, data: AnyPath | None = None) -> Arrays:
    """Fetch the dataset if needed, and map its arrays: images [N, C, H, W] and labels [N], uint8.

    Processes share one copy, and writing to the arrays does not change the files. Raises DataError.
    """
    folder = fetch(dataset, data=data)
    try:
        arrays = {
            name: np.load(folder / array.file, mmap_mode="c", allow_pickle=False)
            for name, array in _prepared(dataset).items()
        }
    except (OSError, ValueError) as error:
        raise DataError(f"cannot map the arrays in {folder}: {error}") from error
    return {name: a.reshape(-1) if name.endswith("labels") else a for name, a in arrays.items()}


def fetch(
    dataset: Dataset,
    *,
    force: bool = False,
    progress: Progress = lambda name, done, total: None,
    data: AnyPath | None = None,
) -> Path:
    """Make sure that the dataset is cached and undamaged, and return its folder.

    `force` replaces it once its successor is verified. Without it a damaged file is reported and
    left alone. With `data`, a folder or archive that the user has, the dataset is taken only from
    there. If several processes fetch at the same time, one does, and the others wait. Raises
    DataError.
    """
    folder = where(dataset)
    given = None if data is None else users_path(data).absolute()
    if given is not None and dataset.packaged:
        raise DataError(f"{dataset.name} ships with remask: leave the path of its data out")
    if given is not None and not given.exists():  # even if the cache has the data
        raise DataError(f"cannot take {dataset.name} from {given}: No such file or directory")
    if (dataset.packaged or not force) and _is_there(dataset):
        return folder
    try:
        files.make_folder(folder)
        with Lock(folder / ".lock", timeout=_PATIENCE):
            files.remove_stale_temporaries(folder)
            if force or not _is_there(dataset):
                _fill(dataset, given, progress)
    except OSError as error:
        reason = error.__cause__ if isinstance(error.__cause__, OSError) else error
        raise DataError(
            f"cannot write to {folder}: {reason.strerror or reason}. Free some space, fix the "
            f"permissions, or set REMASK_DATA to another folder."
        ) from error
    return folder


def _is_there(dataset: Dataset) -> bool:
    """Whether all files are there. Raises DataError for a damaged one."""
    statuses = check(dataset, rehash=False)
    for status in statuses:
        if status.state == "damaged" or (status.state == "missing" and dataset.packaged):
            remedy = f"`remask data fetch {dataset.name} --force` replaces it."
            if dataset.packaged:
                remedy = "Install remask again to restore it."
            raise DataError(
                f"{status.path} is {status.state}.\n  expected: {status.expected}\n"
                f"  found:    {status.found}\n{remedy}"
            )
    return all(status.state == "ok" for status in statuses)


def _fill(dataset: Dataset, given: Path | None, progress: Progress) -> None:
    """Prepare the dataset from the user's path or, without one, the folder and the sources."""
    folder = where(dataset)
    local = given or folder
    failures: list[str] = []
    places: list[Path | Source] = [local, *(dataset.sources if given is None else ())]
    for place in places:
        try:
            _prepare(dataset, place, progress)
        except SourceError as error:
            if given is not None or (place is local and isinstance(error, WrongContentsError)):
                raise DataError(
                    f"cannot take {dataset.name} from {place}: {error}. Replace it, or remove it "
                    f"to download {dataset.name}."
                ) from error
            if not isinstance(error, NothingThereError):
                failures.append(f"  {place}: {error}")
        else:
            _remove_parts(folder)
            return
    tried = "\n".join(failures) or "  no sources"
    raise DataError(
        f"could not get {dataset.name}; tried:\n{tried}\n"
        f"To supply it by hand, put\n{dataset.sources[0].instructions}\ninto\n{folder}\n"
        f"and run the same command again (REMASK_DATA sets another folder), or pass its path\n"
        f"as --data (in Python, data=)."
    )


def _prepare(dataset: Dataset, place: Path | Source, progress: Progress) -> None:
    """Prepare the dataset from a source or a path.

    A partial download may be of another file: if resuming it gives wrong contents, start over.
    """
    folder = where(dataset)
    resumed = any(folder.glob("*.part"))
    try:
        with opened(place, dataset.sources, folder, progress) as (source, read):
            _store(dataset, source, str(place), read, progress)
    except WrongContentsError:
        _remove_parts(folder)
        if not resumed:
            raise
        _prepare(dataset, place, progress)


def _store(dataset: Dataset, source: Source, name: str, read: ReadFile, progress: Progress) -> None:
    """Write all arrays and then the manifest, and remove the arrays of other preparations."""
    folder, token = where(dataset), secrets.token_hex(8)
    arrays: dict[str, _ArrayFile] = {}
    known = dict(zip(_ARRAYS, dataset.checksums, strict=False))
    try:
        for array, shape, pieces in source.read(read):
            path = folder / f"{array}.{token}.npy"
            arrays[array] = _write(path, shape, pieces, progress, f"{dataset.name} {array}")
            found = arrays[array].sha256
            if found != (expected := known.get(array, found)):
                raise WrongContentsError(f"{array}: expected sha256 {expected}, found {found}")
        manifest = _Manifest(dataset=dataset.name, source=name, arrays=arrays)
        content = manifest.model_dump_json(indent=2).encode()
        files.write_atomically(folder / _MANIFEST, content)
    finally:
        with suppress(ValueError):
            listed = {array.file for array in _prepared(dataset).values()}
            for path in folder.glob("*.npy"):
                if path.name not in listed:
                    files.remove_quietly(path)


def _write(
    path: Path, shape: tuple[int, ...], pieces: Iterable[bytes], progress: Progress, shown: str
) -> _ArrayFile:
    """Write an array of bytes."""
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
            progress(shown, size, total)

    files.write_atomically(path, hashed())
    time = path.stat().st_mtime_ns
    return _ArrayFile(file=path.name, sha256=digest.hexdigest(), size=size, time=time)


def _remove_parts(folder: Path) -> None:
    for part in folder.glob("*.part"):
        files.remove_quietly(part)
