"""The files that a dataset was published as: in a folder, a tarball or a zip.

Nothing is extracted to disk under a name from an archive, and the size of a file is limited before
any of it is read.
"""

import gzip
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple, cast

from remask.errors import RemaskError
from remask.files import AnyPath

CHUNK = 1 << 20
# A tarball may hold more than the files that are needed: a readme, padding, headers.
_SLACK = 16 << 20
_BROKEN = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError),
    RuntimeError,  # from a zip with a password
)

Progress = Callable[[str, int, int | None], None]
"""Called with a file's name, the bytes received, and the total if known."""


class DataError(RemaskError):
    """Data is missing, damaged or out of reach; the message names the place and the remedy."""


class SourceError(Exception):
    """One source could not provide a file; the next source may."""


class NothingThereError(SourceError):
    """A folder has no file of the dataset."""


class WrongContentsError(SourceError):
    """A source provided something other than the expected file."""


def users_path(given: AnyPath) -> Path:
    """Expand `~` in a path. Raises DataError."""
    try:
        return Path(given).expanduser()
    except RuntimeError as error:
        raise DataError(f"cannot find {given}: {error}") from error


@dataclass(frozen=True)
class Originals:
    """Published files by name; folders are separated by slashes."""

    open: Callable[[str, int], IO[bytes]]
    """Opens a file of at most the given size. Raises SourceError."""
    verified: bool = False
    """Whether a checksum of the whole archive covers every file."""


@dataclass(frozen=True)
class Folder:
    """Files on disk, as NAME or NAME.gz, in the first of some folders that has them."""

    places: tuple[Path, ...]

    def find(self, name: str) -> Path | None:
        """Return the path of a file, or None."""
        spellings = (name, name.replace("-idx", ".idx"))  # train-images.idx3-ubyte
        for place, spelling, ending in product(self.places, spellings, ("", ".gz")):
            if (path := place / f"{spelling}{ending}").is_file():
                return path
        return None

    def open(self, name: str, most: int) -> IO[bytes]:
        """Open a file of at most `most` bytes. Raises SourceError."""
        places = ", ".join(map(str, self.places))
        try:
            path = self.find(name)
            if path is None:
                raise SourceError(f"neither {name} nor {name}.gz is in {places}")
            if path.suffix == ".gz":
                return gunzipped(path)
            _limit(name, path.stat().st_size, most)
            return path.open("rb")
        except OSError as error:
            raise SourceError(f"cannot read {name} in {places}: {error.strerror}") from error


def gunzipped(path: Path) -> IO[bytes]:
    """Open a .gz file."""
    return cast("IO[bytes]", gzip.open(path))


class _Member(NamedTuple):
    """A file in an archive."""

    name: str
    size: int
    refusal: str
    """Why it must not be read; empty if it may be."""
    open: Callable[[], IO[bytes] | None]


@contextmanager
def open_archive(
    stream: IO[bytes], top: str, unpacked_size: int, workplace: Path, *, verified: bool = False
) -> Iterator[Originals]:
    """Open the folder `top` of a .tar.gz or .zip. Raises WrongContentsError.

    A tarball is first decompressed to an unnamed file in `workplace`, up to a limit: tarfile
    trusts the sizes in the headers, and cannot seek backwards in a .gz.
    """
    stream.seek(0)
    magic = stream.read(4)
    stream.seek(0)
    if magic[:2] == b"\x1f\x8b":
        with tempfile.TemporaryFile(dir=workplace) as plain:
            _unpack(stream, plain, unpacked_size + _SLACK)
            yield _originals("tarball", _tar_members, plain, top, verified)
    elif magic == b"PK\x03\x04":
        yield _originals("zip file", _zip_members, stream, top, verified)
    else:
        raise WrongContentsError("neither a .tar.gz nor a .zip file")


def _originals(
    kind: str,
    list_members: Callable[[IO[bytes]], list[_Member]],
    stream: IO[bytes],
    top: str,
    verified: bool,
) -> Originals:
    members: dict[str, _Member] = {}
    try:
        found = list_members(stream)
    except _BROKEN as error:
        raise WrongContentsError(f"not a complete {kind}: {error}") from error
    for member in found:
        path = PurePosixPath(member.name)
        if path.is_absolute() or ".." in path.parts or not path.is_relative_to(top):
            continue
        inner = str(path.relative_to(top))
        if inner in members:
            raise WrongContentsError(f"{member.name} is in the archive twice")
        members[inner] = member

    def opened(name: str, most: int) -> IO[bytes]:
        if name not in members:
            raise WrongContentsError(f"the archive lacks {top}/{name}")
        member = members[name]
        if member.refusal:
            raise WrongContentsError(f"{member.name} {member.refusal}")
        _limit(member.name, member.size, most)
        try:
            return cast("IO[bytes]", member.open())
        except _BROKEN as error:
            raise WrongContentsError(f"{name}: {error}") from error

    return Originals(opened, verified)


def _tar_members(plain: IO[bytes]) -> list[_Member]:
    tar = tarfile.TarFile(fileobj=plain)  # left open: the members are read later
    return [
        _Member(
            member.name,
            member.size,
            "" if member.isreg() else "is not a regular file",
            partial(tar.extractfile, member),
        )
        for member in tar
        if not member.isdir()
    ]


def _zip_members(stream: IO[bytes]) -> list[_Member]:
    packed = zipfile.ZipFile(stream)
    members = []
    for member in packed.infolist():
        refusal = ""
        if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG):  # 0: unknown
            refusal = "is not a regular file"
        # zipfile respects the declared size with these two; others are decompressed at once.
        elif member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            refusal = "has an unsupported compression"
        if not member.is_dir():
            opener = partial(packed.open, member)
            members.append(_Member(member.filename, member.file_size, refusal, opener))
    return members


def _unpack(stream: IO[bytes], plain: IO[bytes], limit: int) -> None:
    with gzip.GzipFile(fileobj=stream) as unzipped:
        while chunk := _read(unzipped, "the tarball", CHUNK):
            if plain.tell() + len(chunk) > limit:
                raise WrongContentsError(f"the tarball unpacks to more than {limit} bytes")
            plain.write(chunk)
    plain.seek(0)


def read_pieces(
    originals: Originals, name: str, size: int, piece: int, header: int = 0
) -> Iterator[bytes]:
    """Read a file of exactly `size` bytes: its header, if any, and pieces of `piece` bytes."""
    with originals.open(name, size) as stream:
        for start in [*([0] if header else []), *range(header, size, piece)]:
            expected = min(piece if start >= header else header, size - start)
            chunk = _read(stream, name, expected)
            if len(chunk) < expected:
                found = start + len(chunk)
                raise WrongContentsError(f"{name}: expected {size} bytes, found {found}")
            yield chunk
        _limit(name, size + len(_read(stream, name, 1)), size)


def read_small(originals: Originals, name: str, most: int) -> bytes:
    """Read a file of at most `most` bytes."""
    with originals.open(name, most) as stream:
        data = _read(stream, name, most + 1)
    _limit(name, len(data), most)
    return data


def _read(stream: IO[bytes] | gzip.GzipFile, name: str, size: int) -> bytes:
    try:
        return stream.read(size)
    except _BROKEN as error:
        raise WrongContentsError(f"{name} cannot be read: {error}") from error


def _limit(name: str, size: int, most: int) -> None:
    if size > most:
        raise WrongContentsError(f"{name}: {size} bytes, expected at most {most}")
