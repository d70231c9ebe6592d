"""Data that is on the disk already: folders and archives of users, packages of the system."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from remask import durable
from remask.datasets.archives import Archive, Folder, Originals, open_archive
from remask.datasets.files import (
    CHUNK,
    DataFile,
    SourceError,
    WrongContentsError,
    gunzip,
    place,
)
from remask.datasets.mirror import Progress


@dataclass(frozen=True)
class LocalFiles:
    """A folder that holds files as they are or as NAME.gz, perhaps in one of some subfolders."""

    path: Path
    subfolders: tuple[str, ...] = ()
    """Tried after the folder itself."""

    def __str__(self) -> str:
        """Give the path."""
        return str(self.path)

    def obtain(
        self, files: Sequence[DataFile], folder: Path, progress: Progress
    ) -> Iterator[DataFile]:
        """Place copies of the files in `folder`, yielding each; the first that fails ends it."""
        if not self.path.is_dir():
            raise SourceError("there is no such folder")
        for file in files:
            found = self._find(file)
            try:
                with durable.open_regular(found) as stream:
                    packed = found.suffix == ".gz"
                    place(folder, file, gunzip(stream) if packed else _chunks(stream))
            except WrongContentsError as error:
                raise WrongContentsError(f"{found}: {error}") from error
            except OSError as error:
                raise SourceError(f"cannot read {found}: {error.strerror}") from error
            progress(file.name, file.size, file.size)
            yield file

    def _find(self, file: DataFile) -> Path:
        # Some copies of the idx files go by train-images.idx3-ubyte.
        names = (file.name, file.name.replace("-idx", ".idx"))
        for subfolder in ("", *self.subfolders):
            for name in names:
                for ending in ("", ".gz"):
                    path = self.path / subfolder / f"{name}{ending}"
                    if path.is_file():
                        return path
        looked = ", ".join(str(self.path / subfolder) for subfolder in ("", *self.subfolders))
        raise SourceError(f"{file.name}, as it is or as .gz, is in none of: {looked}")


@dataclass(frozen=True)
class Version:
    """One of the forms that a dataset was published in."""

    archive: Archive
    marker: str
    """The original file by which a folder is recognised."""
    rebuilt: Callable[[Originals], Originals] | None = None
    """Offers the files that the dataset is prepared from; None if they are the originals."""


@dataclass(frozen=True)
class LocalOriginals:
    """What a user says has the original files: their folder, one around it, or the archive."""

    path: Path
    versions: tuple[Version, ...]
    """The first that is there is taken."""

    def __str__(self) -> str:
        """Give the path."""
        return str(self.path)

    def is_there(self) -> bool:
        """Whether the path holds the original files or the archive, right or wrong."""
        return any(self._holds(version) for version in self.versions)

    @contextmanager
    def originals(self, folder: Path, progress: Progress) -> Iterator[Originals]:
        """Open what is there; an archive must be the published one, byte for byte."""
        version = self._version()
        with self._opened(version, folder) as originals:
            yield originals if version.rebuilt is None else version.rebuilt(originals)

    def _version(self) -> Version:
        if self.path.is_file():
            # By its name, which a browser may have changed to "cifar-10-python (1).tar.gz".
            name = self.path.name
            named = (v for v in self.versions if v.archive.name.partition(".")[0] in name)
            return next(named, self.versions[0])
        for version in self.versions:
            if self._holds(version):
                return version
        names = [(v.marker, f"the folder {v.archive.top}", v.archive.name) for v in self.versions]
        raise SourceError(
            f"it holds none of {', '.join(name for three in names for name in three)}"
        )

    def _holds(self, version: Version) -> bool:
        packed = self.path / version.archive.name
        return self._unpacked(version) is not None or packed.is_file()

    def _unpacked(self, version: Version) -> Path | None:
        for path in (self.path, self.path / version.archive.top):
            if (path / version.marker).is_file():
                return path
        return None

    @contextmanager
    def _opened(self, version: Version, folder: Path) -> Iterator[Originals]:
        unpacked, archive = self._unpacked(version), version.archive
        if unpacked is not None:
            yield Folder(unpacked)
            return
        packed = self.path if self.path.is_file() else self.path / archive.name
        try:
            stream = durable.open_regular(packed)
        except OSError as error:
            raise SourceError(f"cannot read {packed}: {error.strerror}") from error
        with stream:
            archive.check(stream)
            with open_archive(stream, archive.top, archive.unpacked_size, folder) as originals:
                yield originals


def _chunks(stream: IO[bytes]) -> Iterator[bytes]:
    while True:
        try:
            chunk = stream.read(CHUNK)
        except OSError as error:
            raise SourceError(f"cannot be read: {error.strerror}") from error
        if not chunk:
            return
        yield chunk
