"""The cache of datasets: it is filled from the first source that works, and always verified.

A dataset lives in its own folder of the cache: `$REMASK_DATA`, else `$XDG_CACHE_HOME/remask`,
else `~/.cache/remask`. A file appears there only when all of its bytes have been checked.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from remask import durable
from remask.datasets.dataset import Arrays, Dataset
from remask.datasets.files import (
    DataError,
    DataFile,
    FileStatus,
    NothingThereError,
    Progress,
    SourceError,
    WrongContentsError,
    users_path,
)
from remask.datasets.local import LocalSource
from remask.datasets.originals import Source
from remask.durable import AnyPath
from remask.locks import Lock

# Longer than the slowest preparation: a process that waits needs the data, not an error.
_PATIENCE = 60 * 60.0


def where(dataset: Dataset) -> Path:
    """Name the folder in which the dataset's files are, or will be."""
    return dataset.packaged_in or data_folder() / dataset.name


def verify(dataset: Dataset) -> list[FileStatus]:
    """Compare every file of the dataset with its checksum, reading all of it."""
    return dataset.check(where(dataset), rehash=True)


def is_complete(dataset: Dataset) -> bool:
    """Whether the dataset is there and undamaged; files that are verified are not read again."""
    return all(status.state == "ok" for status in dataset.check(where(dataset), rehash=False))


def fetch(
    dataset: Dataset,
    *,
    force: bool = False,
    progress: Progress | None = None,
    data: AnyPath | None = None,
) -> Path:
    """Make sure that the dataset is there and undamaged, and return its folder.

    Only missing files are fetched; `force` fetches all again and replaces each once its
    successor is verified. A damaged file is reported, never replaced without `force`.
    With `data`, a folder or archive that the user has, what is missing is taken from there and
    nowhere else. If several processes fetch at the same time, one does, and the others wait.
    Raises DataError.
    """
    folder = where(dataset)
    given = None if data is None else _given(dataset, data)
    if dataset.packaged_in is not None:
        force = False
    if not force and not _missing(dataset, folder):
        return folder
    dataset.require()
    try:
        durable.make_folder(folder)
        with Lock(folder / ".lock", timeout=_PATIENCE):
            durable.remove_stale_temporaries(folder)
            # Another process may have fetched it while this one waited.
            wanted = list(dataset.files) if force else _missing(dataset, folder)
            if wanted:
                _fill(dataset, folder, wanted, given, progress or _silent)
    except OSError as error:
        reason = error.__cause__ if isinstance(error.__cause__, OSError) else error
        raise DataError(
            f"cannot write to {folder}: {reason.strerror or reason}. Free some space or mend the "
            f"permissions, or set REMASK_DATA to another folder."
        ) from error
    return folder


def load(dataset: Dataset, data: AnyPath | None = None) -> Arrays:
    """Fetch what is missing, and map train_images, train_labels, test_images and test_labels.

    Images are uint8 [N, C, H, W], labels uint8 [N]. Processes that do so share one copy, and
    writing to the arrays leaves the files alone. Raises DataError.
    """
    arrays = dataset.read(fetch(dataset, data=data))
    return {
        name: array.reshape(len(array), -1)[:, -1] if name.endswith("labels") else array
        for name, array in arrays.items()
    }


def _fill(
    dataset: Dataset, folder: Path, wanted: list[DataFile], given: Path | None, progress: Progress
) -> None:
    supplied = dataset.supplied(folder) if given is None else LocalSource(given, dataset.versions)
    failures: list[str] = []
    for source in (supplied, *(dataset.sources if given is None else ())):
        try:
            _take(dataset, source, wanted, folder, progress)
        except SourceError as error:
            if given is not None or (source is supplied and isinstance(error, WrongContentsError)):
                raise DataError(
                    f"cannot take {dataset.name} from {source}: {error}. Replace what is wrong, or "
                    f"leave it out to have {dataset.name} downloaded."
                ) from error
            if not isinstance(error, NothingThereError):
                failures.append(f"  {source}: {error}")
        if not wanted:
            _remove_parts(folder)
            return
    raise DataError(_out_of_reach(dataset, folder, failures))


def _take(
    dataset: Dataset, source: Source, wanted: list[DataFile], folder: Path, progress: Progress
) -> None:
    """Take what is wanted from a source.

    What an earlier try left may be of another file; if resuming it gives wrong contents, the
    download starts over.
    """
    resumed = any(folder.glob("*.part"))
    try:
        with source.originals(folder, progress) as originals:
            dataset.store(originals, source, wanted, folder, progress)
    except WrongContentsError:
        _remove_parts(folder)
        if not resumed:
            raise
        _take(dataset, source, wanted, folder, progress)


def _remove_parts(folder: Path) -> None:
    for part in folder.glob("*.part"):
        durable.remove_quietly(part)


def _missing(dataset: Dataset, folder: Path) -> list[DataFile]:
    statuses = dataset.check(folder, rehash=False)
    for status in statuses:
        if status.state == "damaged" or (status.state == "missing" and dataset.packaged_in):
            remedy = (
                f"`remask data fetch {dataset.name} --force` replaces it; it was left as it is."
            )
            if dataset.packaged_in:
                remedy = "Install remask again to restore it."
            raise DataError(
                f"{status.path} is {status.state}.\n  expected: {status.expected}\n"
                f"  found:    {status.found}\n{remedy}"
            )
    return [status.file for status in statuses if status.state == "missing"]


def _given(dataset: Dataset, data: AnyPath) -> Path:
    """Refuse a place that could not have the data, also when the cache would do without it."""
    if dataset.packaged_in is not None:
        raise DataError(f"{dataset.name} ships with remask and takes no other data; leave it out")
    path = users_path(data).absolute()
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DataError(f"there is no {path} to take {dataset.name} from") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    return path


def data_folder() -> Path:
    """Where the folders of datasets are, or will be."""
    chosen = os.environ.get("REMASK_DATA")
    return users_path(chosen).absolute() if chosen else cache_folder()


def cache_folder() -> Path:
    """Where is kept what can be had again."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says to ignore a relative path.
    if Path(cache).is_absolute():
        return Path(cache) / "remask"
    try:
        return Path.home() / ".cache" / "remask"
    except RuntimeError as error:
        raise DataError(
            "there is no home folder to keep data in; set REMASK_DATA to a folder"
        ) from error


def _out_of_reach(dataset: Dataset, folder: Path, failures: Sequence[str]) -> str:
    tried = "\n".join(failures) or "  it has no sources"
    by_hand = "\n".join(f"  {line}" for line in dataset.by_hand())
    return (
        f"could not get {dataset.name}; this was tried:\n{tried}\n"
        f"To supply it by hand, put\n{by_hand}\ninto\n{folder}\n"
        f"and run the same command again (REMASK_DATA chooses another folder), or pass its path\n"
        f"as --data, in Python as data=."
    )


def _silent(name: str, done: int, total: int | None) -> None:
    """Report nothing."""
