"""The files a dataset was published as: in a folder, in a tarball or in a zip.

Nothing is ever extracted. Names inside an archive only choose among the files that are asked for,
they never become paths; and a file's size is known, and checked, before any of it is read.
"""

import hashlib
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Generic, Protocol, TypeVar

from remask import durable
from remask.datasets.files import CHUNK, WrongContentsError, cannot_write, gunzip

# What a tarball may hold beside the files that are wanted: a readme, padding, headers.
_SLACK = 16 << 20
Member = TypeVar("Member")
_BROKEN = (tarfile.TarError, zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError)


@dataclass(frozen=True)
class Archive:
    """A published archive, known by its checksum."""

    name: str
    md5: str
    """The checksum that its authors publish."""
    size: int
    top: str
    """The folder that all of its files are in."""
    unpacked_size: int
    """Bytes of the files that are wanted; a tarball that unpacks to far more is refused."""

    def check(self, stream: IO[bytes]) -> None:
        """Raise WrongContentsError unless the stream, read from its start, is this archive."""
        stream.seek(0)
        digest = hashlib.md5(usedforsecurity=False)
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
        size = stream.tell()
        if (size, digest.hexdigest()) != (self.size, self.md5):
            raise WrongContentsError(
                f"{self.name}: expected {self.size} bytes, md5 {self.md5}; "
                f"found {size} bytes, md5 {digest.hexdigest()}"
            )


class Originals(Protocol):
    """Original files by name, the way to them written with slashes."""

    @property
    def verified(self) -> bool:
        """Whether a checksum of the whole has vouched for every file."""
        ...

    def listing(self, folder: str) -> list[str]:
        """Name the files in a folder, sorted; an empty list if there is no such folder."""
        ...

    def size(self, name: str) -> int:
        """Give the bytes of a file. Raises WrongContentsError if it is not there."""
        ...

    def open(self, name: str) -> IO[bytes]:
        """Open a file for reading. Raises WrongContentsError if it is not there."""
        ...


class Folder:
    """Original files that someone has unpacked already."""

    verified = False

    def __init__(self, path: Path) -> None:
        self._path = path

    def listing(self, folder: str) -> list[str]:
        """Name the files in a folder."""
        try:
            return sorted(path.name for path in (self._path / folder).iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise WrongContentsError(f"cannot read {self._path / folder}: {error}") from error

    def size(self, name: str) -> int:
        """Give the bytes of a file."""
        try:
            return (self._path / name).stat().st_size
        except OSError as error:
            raise WrongContentsError(f"{self._path / name}: {error.strerror}") from error

    def open(self, name: str) -> IO[bytes]:
        """Open a regular file."""
        try:
            return durable.open_regular(self._path / name)
        except OSError as error:
            raise WrongContentsError(f"{self._path / name}: {error.strerror}") from error


class _Packed(Generic[Member]):
    """The members of an archive that are in its top folder."""

    verified = True

    def __init__(self, top: str) -> None:
        self._top = PurePosixPath(top)
        self._members: dict[str, Member] = {}
        self._folders: dict[str, list[str]] = {}

    def add(self, name: str, member: Member) -> None:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.is_relative_to(self._top):
            return  # never asked for, so never read
        inner = path.relative_to(self._top)
        if str(inner) in self._members:
            raise WrongContentsError(f"{name} is in the archive twice")
        self._members[str(inner)] = member
        self._folders.setdefault(str(inner.parent), []).append(inner.name)

    def listing(self, folder: str) -> list[str]:
        return sorted(self._folders.get(folder, ()))

    def find(self, name: str) -> Member:
        try:
            return self._members[name]
        except KeyError:
            raise WrongContentsError(f"the archive lacks {self._top / name}") from None


class _Tarball(_Packed[tarfile.TarInfo]):
    def __init__(self, tar: tarfile.TarFile, top: str) -> None:
        super().__init__(top)
        self._tar = tar
        for member in tar:
            if not member.isdir():
                self.add(member.name, member)

    def size(self, name: str) -> int:
        member = self.find(name)
        if not member.isreg():
            raise WrongContentsError(f"{member.name} is not a regular file")
        return member.size

    def open(self, name: str) -> IO[bytes]:
        self.size(name)
        stream = self._tar.extractfile(self.find(name))
        assert stream is not None  # it is a regular file
        return stream


class _Zip(_Packed[zipfile.ZipInfo]):
    def __init__(self, packed: zipfile.ZipFile, top: str) -> None:
        super().__init__(top)
        self._zip = packed
        for member in packed.infolist():
            if not member.is_dir():
                self.add(member.filename, member)

    def size(self, name: str) -> int:
        member = self.find(name)
        kind = stat.S_IFMT(member.external_attr >> 16)  # zero when made on Windows
        if kind not in (0, stat.S_IFREG):
            raise WrongContentsError(f"{member.filename} is not a regular file")
        # zipfile keeps to the declared size with these two; others it decompresses in one go.
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise WrongContentsError(f"{member.filename} is compressed in an unusual way")
        return member.file_size

    def open(self, name: str) -> IO[bytes]:
        self.size(name)
        try:
            return self._zip.open(self.find(name))
        except (RuntimeError, *_BROKEN) as error:  # RuntimeError: it asks for a password
            raise WrongContentsError(f"{name}: {error}") from error


@contextmanager
def open_archive(
    stream: IO[bytes], top: str, unpacked_size: int, workplace: Path
) -> Iterator[Originals]:
    """Open a .tar.gz or .zip whose contents somebody has vouched for.

    A tarball is unpacked to an unnamed file in `workplace` first, no further than it may grow:
    tarfile would believe the sizes that headers declare, and cannot go back in a .gz.
    """
    stream.seek(0)
    magic = stream.read(4)
    stream.seek(0)
    if magic[:2] == b"\x1f\x8b":
        with ExitStack() as stack:
            try:
                plain = stack.enter_context(tempfile.TemporaryFile(dir=workplace))
            except OSError as error:
                raise cannot_write(workplace, error) from error
            _unpack(stream, plain, unpacked_size + _SLACK, workplace)
            yield _open_tarball(plain, top)
    elif magic == b"PK\x03\x04":
        try:
            packed = zipfile.ZipFile(stream)
        except _BROKEN as error:
            raise WrongContentsError(f"not a whole zip file: {error}") from error
        with packed:
            yield _Zip(packed, top)
    else:
        raise WrongContentsError("neither a .tar.gz nor a .zip file")


def _open_tarball(plain: IO[bytes], top: str) -> Originals:
    try:
        # Left open, as `plain` is whoever's it is, and the members are read from it later.
        return _Tarball(tarfile.TarFile(fileobj=plain), top)
    except _BROKEN as error:
        raise WrongContentsError(f"not a whole tarball: {error}") from error


def read_chunks(originals: Originals, name: str, size: int, piece: int) -> Iterator[bytes]:
    """Read a file of exactly `size` bytes in pieces, each of `piece` bytes but for the last."""
    found = originals.size(name)
    if found != size:
        raise WrongContentsError(f"{name}: expected {size} bytes, found {found}")
    with originals.open(name) as stream:
        done = 0
        while done < size:
            chunk = _read(stream, name, min(piece, size - done))
            done += len(chunk)
            yield chunk


def read_small(originals: Originals, name: str, limit: int) -> bytes:
    """Read a whole file, taking no memory for one that is larger than it may be."""
    size = originals.size(name)
    if size > limit:
        raise WrongContentsError(f"{name}: {size} bytes, where at most {limit} are expected")
    with originals.open(name) as stream:
        return _read(stream, name, size)


def _read(stream: IO[bytes], name: str, size: int) -> bytes:
    try:
        data = stream.read(size)
    except _BROKEN as error:
        raise WrongContentsError(f"{name} cannot be read: {error}") from error
    if len(data) != size:
        raise WrongContentsError(f"{name} ends early")
    return data


def _unpack(stream: IO[bytes], plain: IO[bytes], limit: int, workplace: Path) -> None:
    for chunk in gunzip(stream):
        if plain.tell() + len(chunk) > limit:
            raise WrongContentsError(f"the tarball unpacks to more than {limit} bytes")
        try:
            plain.write(chunk)
        except OSError as error:
            raise cannot_write(workplace, error) from error
    plain.seek(0)
