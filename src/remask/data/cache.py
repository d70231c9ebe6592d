"""The cache of datasets: filled from the first source that works, and always verified.

A dataset has its own folder in `$REMASK_DATA`, else `$XDG_CACHE_HOME/remask`, else
`~/.cache/remask`.
"""

import os
from pathlib import Path

from remask import files
from remask.data.dataset import Arrays, Dataset, FileStatus, PreparedDataset
from remask.data.originals import (
    DataError,
    NothingThereError,
    Progress,
    SourceError,
    WrongContentsError,
    users_path,
)
from remask.data.sources import FileSource, LocalSource
from remask.files import AnyPath, Lock

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
