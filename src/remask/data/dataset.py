"""Datasets: fetched when needed, always verified, mapped into memory.

A dataset has its own folder in `$REMASK_DATA`, else `$XDG_CACHE_HOME/remask`, else
`~/.cache/remask`.
"""

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from remask.data.downloads import Progress
from remask.data.sources import users_path
from remask.errors import DataError
from remask.files import AnyPath

Arrays = Mapping[str, npt.NDArray[np.uint8]]
"""train_images, train_labels, test_images, test_labels."""


@dataclass(frozen=True)
class FileStatus:
    """A file of a dataset, compared with what it should contain."""

    path: Path
    state: Literal["ok", "missing", "damaged"]
    expected: str
    found: str


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

    def prepare(self, folder: Path, *, given: Path | None, force: bool, progress: Progress) -> None:
        """Put the files into the folder, from `given` or the web. Raises DataError."""
        raise DataError(f"{self.name} ships with remask: there is nothing to fetch")


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
    return dataset.packaged_in or data_folder() / dataset.name


def verify(dataset: Dataset) -> list[FileStatus]:
    """Compare every file of the dataset with its checksum, reading all of it."""
    return dataset.check(where(dataset), rehash=True)


def is_complete(dataset: Dataset) -> bool:
    """Whether the dataset is cached and undamaged; verified files are not read again."""
    return all(status.state == "ok" for status in dataset.check(where(dataset), rehash=False))


def load(dataset: Dataset, data: AnyPath | None = None) -> Arrays:
    """Fetch the dataset if needed, and map its arrays: images [N, C, H, W] and labels [N], uint8.

    Processes share one copy, and writing to the arrays does not change the files. Raises DataError.
    """
    arrays = dataset.read(fetch(dataset, data=data))
    return {
        name: array.reshape(len(array), -1)[:, -1] if name.endswith("labels") else array
        for name, array in arrays.items()
    }


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
    path = None if data is None else _given(dataset, data)
    if (force and dataset.packaged_in is None) or not is_there(dataset, folder):
        dataset.prepare(folder, given=path, force=force, progress=progress)
    return folder


def _given(dataset: Dataset, data: AnyPath) -> Path:
    """Check the path even if the cache has the data."""
    if dataset.packaged_in is not None:
        raise DataError(f"{dataset.name} ships with remask: leave the path of its data out")
    path = users_path(data).absolute()
    try:
        path.stat()
    except OSError as error:
        raise DataError(f"cannot take {dataset.name} from {path}: {error.strerror}") from error
    return path


def is_there(dataset: Dataset, folder: Path) -> bool:
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
