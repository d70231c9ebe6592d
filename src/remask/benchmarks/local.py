"""Data that is on the disk already: folders and archives of users, packages of the system."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from remask import durable
from remask.benchmarks.archives import Archive, Folder, Originals, open_archive
from remask.benchmarks.files import (
    CHUNK,
    DataError,
    DataFile,
    SourceError,
    WrongContentsError,
    gunzip,
    place,
)
from remask.benchmarks.mirror import Progress


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
class LocalOriginals:
    """What a user says has the original files: their folder, one around it, or the archive."""

    path: Path
    archive: Archive
    marker: str
    url: str
    pickled: str = ""

    def __str__(self) -> str:
        """Give the path."""
        return str(self.path)

    def is_there(self) -> bool:
        """Whether the path holds the original files or the archive, right or wrong."""
        return self._unpacked() is not None or (self.path / self.archive.name).is_file()

    @contextmanager
    def originals(self, folder: Path, progress: Progress) -> Iterator[Originals]:
        """Open what is there; an archive must be the published one, byte for byte."""
        self._refuse_pickle()
        unpacked = self._unpacked()
        if unpacked is not None:
            yield Folder(unpacked)
            return
        packed = self.path if self.path.is_file() else self.path / self.archive.name
        try:
            stream = durable.open_regular(packed)
        except FileNotFoundError:
            raise SourceError(
                f"it holds neither {self.marker}, nor the folder {self.archive.top}, "
                f"nor {self.archive.name}"
            ) from None
        except OSError as error:
            raise SourceError(f"cannot read {packed}: {error.strerror}") from error
        with stream:
            self.archive.check(stream)
            with open_archive(
                stream, self.archive.top, self.archive.unpacked_size, folder
            ) as originals:
                yield originals

    def _unpacked(self) -> Path | None:
        for path in (self.path, self.path / self.archive.top):
            if (path / self.marker).is_file():
                return path
        return None

    def _refuse_pickle(self) -> None:
        if not self.pickled or self._unpacked() is not None:
            return
        python_archive = self.archive.name.replace("-binary", "-python")
        given = self.path.name in (self.pickled, python_archive)
        inside = [self.path / self.pickled, self.path / python_archive]
        has_binary = (self.path / self.archive.name).exists()
        if given or (not has_binary and any(path.exists() for path in inside)):
            raise DataError(
                f"{self.path} holds the Python version, {self.pickled}, which is in pickle: "
                f"loading it can run any code, so remask never does. Get the binary version, "
                f"{self.archive.name}, from {self.url} and give that, or leave `data` out to have "
                f"it downloaded."
            )


def _chunks(stream: IO[bytes]) -> Iterator[bytes]:
    while True:
        try:
            chunk = stream.read(CHUNK)
        except OSError as error:
            raise SourceError(f"cannot be read: {error.strerror}") from error
        if not chunk:
            return
        yield chunk
