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
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
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


@dataclass(frozen=True)
class Originals:
    """Original files by name, the way to them written with slashes."""

    open: Callable[[str, int], IO[bytes]]
    """Opens a file by name that has at most so many bytes. Raises SourceError."""
    verified: bool = False
    """Whether a checksum of the whole has vouched for every file."""


class Source(Protocol):
    """A way to get the original files; `str(source)` names it in messages."""

    def originals(self, folder: Path, progress: Progress) -> AbstractContextManager[Originals]:
        """Open the originals, using `folder` for what has to be stored. Raises SourceError."""
        ...


@dataclass(frozen=True)
class Folder:
    """Files that are on the disk already, as they are or as NAME.gz, in one of some places."""

    places: tuple[Path, ...]
    endings: tuple[str, ...] = ("", ".gz")

    def find(self, name: str) -> Path | None:
        """Find a file."""
        spellings = (name, name.replace("-idx", ".idx"))  # train-images.idx3-ubyte
        for place, spelling, ending in product(self.places, spellings, self.endings):
            if (path := place / f"{spelling}{ending}").is_file():
                return path
        return None

    def open(self, name: str, most: int) -> IO[bytes]:
        """Open a file of at most so many bytes. Raises SourceError."""
        places = ", ".join(map(str, self.places))
        try:
            path = self.find(name)
            if path is None:
                raise SourceError(f"there is no {name}, as it is or as .gz, in {places}")
            if path.suffix == ".gz":
                return gunzipped(path)
            _limit(name, path.stat().st_size, most)
            return path.open("rb")
        except OSError as error:
            raise SourceError(f"cannot read {name} in {places}: {error.strerror}") from error


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
            yield _packed("tarball", _tar_members, plain, top, verified)
    elif magic == b"PK\x03\x04":
        yield _packed("zip file", _zip_members, stream, top, verified)
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


def _packed(
    kind: str,
    members: Callable[[IO[bytes]], list[tuple[str, Opener]]],
    stream: IO[bytes],
    top: str,
    verified: bool,
) -> Originals:
    """The members of an archive that are in its top folder."""
    openers: dict[str, Opener] = {}
    try:
        found = members(stream)
    except _BROKEN as error:
        raise WrongContentsError(f"not a whole {kind}: {error}") from error
    for name, opener in found:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.is_relative_to(top):
            continue  # never wanted, so never read
        inner = str(path.relative_to(top))
        if inner in openers:
            raise WrongContentsError(f"{name} is in the archive twice")
        openers[inner] = opener

    def opened(name: str, most: int) -> IO[bytes]:
        if name not in openers:
            raise WrongContentsError(f"the archive lacks {top}/{name}")
        try:
            return openers[name](most)
        except _BROKEN as error:
            raise WrongContentsError(f"{name}: {error}") from error

    return Originals(opened, verified)


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
