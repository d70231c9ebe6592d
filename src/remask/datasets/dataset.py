"""What a dataset is: the files that are kept of it, where they come from, and how they are read."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from remask.datasets.files import DataFile, FileStatus, NothingThereError, Progress, place
from remask.datasets.local import LocalSource, Version
from remask.datasets.originals import Folder, Originals, Source, read_pieces
from remask.datasets.stamps import check_file, check_files

Arrays = Mapping[str, npt.NDArray[np.uint8]]
"""Of a dataset: train_images, train_labels, test_images, test_labels."""


@dataclass(frozen=True, kw_only=True)
class Dataset(ABC):
    """A dataset by name."""

    name: str
    summary: str
    """What it is, in a line for people."""
    class_names: tuple[str, ...]
    """By label."""
    files: tuple[DataFile, ...]
    """What is wanted where nothing is there."""
    sources: tuple[Source, ...] = ()
    """To be tried in this order."""
    versions: tuple[Version, ...] = ()
    """The forms in which users may have it."""
    packaged_in: Path | None = None
    """The folder inside the installed package, if it ships with it."""
    require: Callable[[], object] = lambda: None
    """Raises DataError if something that `store` needs is not installed."""

    @abstractmethod
    def check(self, folder: Path, *, rehash: bool) -> list[FileStatus]:
        """Compare what is in the folder with what should be, reading all files if `rehash`."""

    @abstractmethod
    def store(
        self,
        originals: Originals,
        source: Source,
        wanted: list[DataFile],
        folder: Path,
        progress: Progress,
    ) -> None:
        """Make the files that are wanted, taking each from the list when it is there."""

    @abstractmethod
    def read(self, folder: Path) -> Arrays:
        """Map the arrays into memory; labels may be [N] or [N, several], the finest last."""

    def supplied(self, folder: Path) -> Source:
        """What a user may have put into the folder by hand."""
        archives = any(version.archive for version in self.versions)
        return LocalSource(folder, self.versions) if archives else _Beside(folder)

    def by_hand(self) -> list[str]:
        """Say what a user may put there, a line for each."""
        if self.versions and (archive := self.versions[0].archive):
            described = f"{archive.name} ({archive.size} bytes, md5 {archive.md5}), which is at"
            return [described, archive.url, f"or the folder {archive.top} that it unpacks to"]
        return [f"{file}, as it is or as {file.name}.gz" for file in self.files]


@dataclass(frozen=True, kw_only=True)
class FileDataset(Dataset):
    """A dataset that is kept as the files that it was published as, known by their checksums."""

    reader: Callable[[Path], Arrays]
    """Reads the arrays from the folder of the files."""

    def check(self, folder: Path, *, rehash: bool) -> list[FileStatus]:
        """Compare every file with its checksum."""
        if self.packaged_in is not None:  # small, and in no place for stamps
            return [check_file(folder / file.name, file) for file in self.files]
        return check_files(folder, self.files, rehash=rehash)

    def store(
        self,
        originals: Originals,
        source: Source,
        wanted: list[DataFile],
        folder: Path,
        progress: Progress,
    ) -> None:
        """Place the files as they are."""
        for file in tuple(wanted):
            place(folder, file, read_pieces(originals, file.name, file.size))
            progress(file.name, file.size, file.size)
            wanted.remove(file)

    def read(self, folder: Path) -> Arrays:
        """Read the arrays."""
        return self.reader(folder)


@dataclass(frozen=True)
class _Beside:
    """The .gz files that a user has put beside the places of the files."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    @contextmanager
    def originals(self, folder: Path, progress: Progress) -> Iterator[Originals]:
        if not any(self.path.glob("*.gz")):
            raise NothingThereError("there is no .gz file")
        yield Originals(Folder((self.path,), endings=(".gz",)).open)
