"""The files a dataset was published as: in a folder, in a tarball or in a zip.

Nothing is ever extracted. Names inside an archive only choose among the files that are wanted,
they never become paths; and a file's size is limited before any of it is read.
"""

import gzip
import hashlib
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import IO, Protocol, cast

from remask import durable
from remask.datasets.files import CHUNK, Progress, SourceError, WrongContentsError

# What a tarball may hold beside the files that are wanted: a readme, padding, headers.
_SLACK = 16 << 20
_BROKEN = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError),
    RuntimeError,  # a zip that wants a password
)


class Originals(Protocol):
    """Original files by name, the way to them written with slashes."""

    @property
    def verified(self) -> bool:
        """Whether a checksum of the whole has vouched for every file."""
        ...

    def names(self, folder: str) -> list[str]:
        """Name the files in a folder, sorted; an empty list if there is no such folder."""
        ...

    def open(self, name: str, most: int) -> IO[bytes]:
        """Open a file of at most `most` bytes. Raises SourceError."""
        ...


class Source(Protocol):
    """A way to get the original files; `str(source)` names it in messages."""

    def originals(self, folder: Path, progress: Progress) -> AbstractContextManager[Originals]:
        """Open the originals, using `folder` for what has to be stored. Raises SourceError."""
        ...


class Folder:
    """Files that are on the disk already, as they are or as NAME.gz, in one of some places."""

    verified = False

    def __init__(self, *places: Path, endings: tuple[str, ...] = ("", ".gz")) -> None:
        self._places, self._endings = places, endings

    def find(self, name: str) -> Path | None:
        """Find a file."""
        spellings = (name, name.replace("-idx", ".idx"))  # train-images.idx3-ubyte
        for place in self._places:
            for spelling in spellings:
                for ending in self._endings:
                    if (path := place / f"{spelling}{ending}").is_file():
                        return path
        return None

    def names(self, folder: str) -> list[str]:
        """Name the files in a folder."""
        found = next((place / folder for place in self._places if (place / folder).is_dir()), None)
        try:
            return sorted(path.name for path in found.iterdir()) if found else []
        except OSError as error:
            raise SourceError(f"cannot read {found}: {error.strerror}") from error

    def open(self, name: str, most: int) -> IO[bytes]:
        """Open a file."""
        path = self.find(name)
        if path is None:
            places = ", ".join(map(str, self._places))
            raise SourceError(f"there is no {name}, as it is or as .gz, in {places}")
        try:
            if path.suffix == ".gz":
                return gunzipped(path)
            _limit(name, path.stat().st_size, most)
            return path.open("rb")
        except OSError as error:
            raise SourceError(f"cannot read {path}: {error.strerror}") from error


@dataclass(frozen=True)
class Rebuilt:
    """Original files that are made from others when they are opened."""

    rebuild: Callable[[str], bytes]
    verified: bool = False

    def names(self, folder: str) -> list[str]:
        """Name nothing: the files are known by name."""
        return []

    def open(self, name: str, most: int) -> IO[bytes]:
        """Rebuild a file."""
        return BytesIO(self.rebuild(name))


@dataclass(frozen=True)
class Archive:
    """A published archive, known by its checksum."""

    url: str
    md5: str
    """The checksum that its authors publish."""
    size: int
    top: str
    """The folder that all of its files are in."""
    unpacked_size: int = 0
    """Bytes of the files that are wanted; a tarball that unpacks to far more is refused."""

    @property
    def name(self) -> str:
        """The last part of its address."""
        return self.url.rpartition("/")[2]

    @contextmanager
    def opened(self, path: Path, workplace: Path) -> Iterator[Originals]:
        """Open the file at `path`, which must be this archive, byte for byte."""
        try:
            stream = durable.open_regular(path)
        except OSError as error:
            raise SourceError(f"cannot read {path}: {error.strerror}") from error
        with stream:
            found = hashlib.file_digest(stream, partial(hashlib.md5, usedforsecurity=False))
            if (stream.tell(), found.hexdigest()) != (self.size, self.md5):
                raise WrongContentsError(
                    f"{self.name}: expected {self.size} bytes, md5 {self.md5}; "
                    f"found {stream.tell()} bytes, md5 {found.hexdigest()}"
                )
            with open_archive(
                stream, self.top, self.unpacked_size, workplace, verified=True
            ) as originals:
                yield originals


@contextmanager
def open_archive(
    stream: IO[bytes], top: str, unpacked_size: int, workplace: Path, *, verified: bool = False
) -> Iterator[Originals]:
    """Open a .tar.gz or .zip; `verified` says that its checksum has vouched for it.

    A tarball is unpacked to an unnamed file in `workplace` first, no further than it may grow:
    tarfile would believe the sizes that headers declare, and cannot go back in a .gz.
    """
    stream.seek(0)
    magic = stream.read(4)
    stream.seek(0)
    if magic[:2] == b"\x1f\x8b":
        with tempfile.TemporaryFile(dir=workplace) as plain:
            _unpack(stream, plain, unpacked_size + _SLACK)
            yield _Packed(top, verified, _whole("tarball", lambda: _tar_members(plain)))
    elif magic == b"PK\x03\x04":
        yield _Packed(top, verified, _whole("zip file", lambda: _zip_members(stream)))
    else:
        raise WrongContentsError("neither a .tar.gz nor a .zip file")


def read_pieces(originals: Originals, name: str, size: int, piece: int = CHUNK) -> Iterator[bytes]:
    """Read a file of exactly `size` bytes in pieces, each of `piece` bytes but for the last."""
    with originals.open(name, size) as stream:
        for start in range(0, size, piece):
            chunk = _read(stream, name, min(piece, size - start))
            if len(chunk) < min(piece, size - start):
                found = start + len(chunk)
                raise WrongContentsError(f"{name}: expected {size} bytes, found {found}")
            yield chunk
        _limit(name, size + len(_read(stream, name, 1)), size)


def read_small(originals: Originals, name: str, most: int) -> bytes:
    """Read a whole file, taking no memory for one that is larger than it may be."""
    with originals.open(name, most) as stream:
        data = _read(stream, name, most + 1)
    _limit(name, len(data), most)
    return data


Opener = Callable[[int], IO[bytes]]
"""Opens a member of at most so many bytes."""


class _Packed:
    """The members of an archive that are in its top folder."""

    def __init__(self, top: str, verified: bool, members: Iterable[tuple[str, Opener]]) -> None:
        self.verified = verified
        self._top = PurePosixPath(top)
        self._openers: dict[str, Opener] = {}
        self._folders: dict[str, list[str]] = {}
        for name, opener in members:
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or not path.is_relative_to(self._top):
                continue  # never wanted, so never read
            inner = path.relative_to(self._top)
            if str(inner) in self._openers:
                raise WrongContentsError(f"{name} is in the archive twice")
            self._openers[str(inner)] = opener
            self._folders.setdefault(str(inner.parent), []).append(inner.name)

    def names(self, folder: str) -> list[str]:
        return sorted(self._folders.get(folder, ()))

    def open(self, name: str, most: int) -> IO[bytes]:
        if name not in self._openers:
            raise WrongContentsError(f"the archive lacks {self._top / name}")
        try:
            return self._openers[name](most)
        except _BROKEN as error:
            raise WrongContentsError(f"{name}: {error}") from error


def _tar_members(plain: IO[bytes]) -> list[tuple[str, Opener]]:
    # Left open, as `plain` belongs to the caller, and the members are read from it later.
    tar = tarfile.TarFile(fileobj=plain)

    def opened(member: tarfile.TarInfo, most: int) -> IO[bytes]:
        if not member.isreg():
            raise WrongContentsError(f"{member.name} is not a regular file")
        _limit(member.name, member.size, most)
        stream = tar.extractfile(member)
        assert stream is not None  # it is a regular file
        return stream

    return [(member.name, partial(opened, member)) for member in tar if not member.isdir()]


def _zip_members(stream: IO[bytes]) -> list[tuple[str, Opener]]:
    packed = zipfile.ZipFile(stream)

    def opened(member: zipfile.ZipInfo, most: int) -> IO[bytes]:
        kind = stat.S_IFMT(member.external_attr >> 16)  # zero when made on Windows
        if kind not in (0, stat.S_IFREG):
            raise WrongContentsError(f"{member.filename} is not a regular file")
        # zipfile keeps to the declared size with these two; others it decompresses in one go.
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise WrongContentsError(f"{member.filename} is compressed in an unusual way")
        _limit(member.filename, member.file_size, most)
        return packed.open(member)

    return [
        (member.filename, partial(opened, member))
        for member in packed.infolist()
        if not member.is_dir()
    ]


def _whole(kind: str, members: Callable[[], list[tuple[str, Opener]]]) -> list[tuple[str, Opener]]:
    try:
        return members()
    except _BROKEN as error:
        raise WrongContentsError(f"not a whole {kind}: {error}") from error


def _unpack(stream: IO[bytes], plain: IO[bytes], limit: int) -> None:
    with gzip.GzipFile(fileobj=stream) as unzipped:
        while chunk := _read(unzipped, "the tarball", CHUNK):
            if plain.tell() + len(chunk) > limit:
                raise WrongContentsError(f"the tarball unpacks to more than {limit} bytes")
            plain.write(chunk)
    plain.seek(0)


def gunzipped(path: Path) -> IO[bytes]:
    """Open what is in a .gz file."""
    return cast("IO[bytes]", gzip.open(path))  # whose own type is not taken for one of streams


def _read(stream: IO[bytes] | gzip.GzipFile, name: str, size: int) -> bytes:
    try:
        return stream.read(size)
    except _BROKEN as error:
        raise WrongContentsError(f"{name} cannot be read: {error}") from error


def _limit(name: str, size: int, most: int) -> None:
    if size > most:
        raise WrongContentsError(f"{name}: {size} bytes, where at most {most} are expected")
