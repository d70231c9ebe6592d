"""Where data comes from: the cache, then each source in turn, always verified.

A dataset lives in its own folder of the cache: `$REMASK_DATA`, else `$XDG_CACHE_HOME/remask`,
else `~/.cache/remask`. A file appears there only when all of its bytes have been checked.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from remask.datasets.files import (
    DataError,
    DataFile,
    FileStatus,
    SourceError,
    check_file,
    make_folder,
    unpack_local_gz,
    users_path,
)
from remask.datasets.local import LocalFiles
from remask.datasets.mirror import Progress
from remask.datasets.prepared import Arrays, Preparation, map_arrays, prepare, verify_prepared
from remask.durable import AnyPath


class Source(Protocol):
    """A way to get files; `str(source)` names it in messages."""

    def obtain(
        self, files: Sequence[DataFile], folder: Path, progress: Progress
    ) -> Iterator[DataFile]:
        """Place the files in `folder` with `files.place`, yielding each one placed.

        Raises SourceError with the reason when it cannot go on. Files placed by then stay.
        """
        ...


@dataclass(frozen=True)
class Dataset:
    """Files that are known by checksum, and the sources to try for them, in order."""

    name: str
    class_names: tuple[str, ...]
    """By label."""
    files: tuple[DataFile, ...]
    sources: tuple[Source, ...] = ()
    read: Callable[[Path], Arrays] | None = None
    """Reads its arrays from the folder of its files, unless they are prepared."""
    packaged_in: Path | None = None
    """The folder inside the installed package, for a dataset that ships with it."""
    preparation: Preparation | None = None
    """How its arrays are made, for a dataset that is not used as it was published."""
    subfolders: tuple[str, ...] = ()
    """Where else in a user's folder its files may be."""


def where(dataset: Dataset) -> Path:
    """Name the folder in which the dataset's files are, or will be."""
    return dataset.packaged_in or _cache_folder() / dataset.name


def verify(dataset: Dataset) -> list[FileStatus]:
    """Compare every file of the dataset with its checksum. Reads all, changes nothing."""
    folder = where(dataset)
    if dataset.preparation is not None:
        return verify_prepared(dataset.name, dataset.preparation, folder)
    return [check_file(folder, file) for file in dataset.files]


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
    nowhere else. Raises DataError.
    """
    folder = where(dataset)
    given = None if data is None else _users_own(dataset, data)
    if dataset.packaged_in is not None:
        return folder
    if dataset.preparation is not None:
        prepare(
            dataset.name,
            dataset.preparation,
            folder,
            data=given,
            force=force,
            progress=progress or _silent,
        )
        return folder
    make_folder(folder)
    wanted = list(dataset.files) if force else _missing(dataset, folder)
    failures: list[str] = []
    sources = dataset.sources if given is None else (LocalFiles(given, dataset.subfolders),)
    for source in sources:
        if not wanted:
            break
        try:
            for file in source.obtain(tuple(wanted), folder, progress or _silent):
                wanted.remove(file)
        except SourceError as error:
            if given is not None:
                raise DataError(f"cannot take {dataset.name} from {given}: {error}") from error
            failures.append(f"  {source}: {error}")
    if wanted:
        raise DataError(_out_of_reach(dataset, wanted, folder, failures))
    return folder


def load(dataset: Dataset, data: AnyPath | None = None) -> Arrays:
    """Fetch what is missing, and map train_images, train_labels, test_images and test_labels.

    Images are uint8 [N, C, H, W], labels uint8 [N], the finest where there are several. Writing to
    the arrays leaves the files alone. Raises DataError.
    """
    folder = fetch(dataset, data=data)
    if dataset.preparation is not None:
        arrays = map_arrays(dataset.name, dataset.preparation, folder)
    else:
        if dataset.packaged_in is not None:
            _missing(dataset, folder)  # refuses what is damaged
        assert dataset.read is not None, f"{dataset.name} has no arrays"
        arrays = dataset.read(folder)
    return {
        name: array.reshape(len(array), -1)[:, -1] if name.endswith("labels") else array
        for name, array in arrays.items()
    }


def _missing(dataset: Dataset, folder: Path) -> list[DataFile]:
    missing = []
    for status in verify(dataset):
        if status.state == "damaged":
            raise DataError(_damaged(dataset, status))
        if status.state == "missing" and not unpack_local_gz(folder, status.file):
            missing.append(status.file)
    return missing


def _users_own(dataset: Dataset, data: AnyPath) -> Path:
    """Refuse a place that could not have the data, also when the cache would do without it."""
    if dataset.packaged_in is not None:
        raise DataError(f"{dataset.name} ships with remask and takes no other data; leave it out")
    path = users_path(data).absolute()
    if not path.exists():
        raise DataError(f"there is no {path} to take {dataset.name} from")
    if dataset.preparation is None and not path.is_dir():
        raise DataError(
            f"{path} is a file; give the folder that holds "
            f"{', '.join(file.name for file in dataset.files)}, as they are or as .gz"
        )
    return path


def _cache_folder() -> Path:
    chosen = os.environ.get("REMASK_DATA")
    if chosen:
        return users_path(chosen).absolute()
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


def _damaged(dataset: Dataset, status: FileStatus) -> str:
    remedy = (
        "Install remask again to restore it."
        if dataset.packaged_in is not None
        else f"It was left as it is; `remask data fetch {dataset.name} --force` downloads it again."
    )
    return (
        f"{status.path} is {status.state}.\n"
        f"  expected: {status.expected}\n"
        f"  found:    {status.found}\n"
        f"{remedy}"
    )


def _out_of_reach(
    dataset: Dataset, wanted: list[DataFile], folder: Path, failures: list[str]
) -> str:
    tried = "\n".join(failures) or "  it has no sources"
    by_hand = "\n".join(f"  {file}" for file in wanted)
    return (
        f"could not get {dataset.name}; this was tried:\n{tried}\n"
        f"To supply the files by hand, put these, as they are or as NAME.gz, into\n{folder}\n"
        f"and run the same command again (REMASK_DATA chooses another folder). Sizes and\n"
        f"checksums are those of the unpacked files:\n{by_hand}"
    )


def _silent(name: str, done: int, total: int | None) -> None:
    """Report nothing."""
