"""Files whose contents are known in advance: describing, checking and placing them."""

import hashlib
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from gzip import GzipFile
from pathlib import Path
from typing import IO, Literal

from remask import durable
from remask.errors import RemaskError

CHUNK = 1 << 20


class DataError(RemaskError):
    """Data is missing, damaged or out of reach; the message says where, and what to do."""


class SourceError(Exception):
    """One source could not give a file; the next source may."""


class WrongContentsError(SourceError):
    """A source gave something other than the file that was asked for."""


@dataclass(frozen=True)
class DataFile:
    """A file by name and by contents."""

    name: str
    sha256: str
    size: int

    def __str__(self) -> str:
        """Give name, size and checksum, as messages print them."""
        return f"{self.name} ({describe(self.size, self.sha256)})"


@dataclass(frozen=True)
class FileStatus:
    """What is at the place where a file belongs, against what should be there."""

    file: DataFile
    path: Path
    state: Literal["ok", "missing", "damaged"]
    expected: str
    found: str


def users_path(given: durable.AnyPath) -> Path:
    """The place that a user means, `~` being their home folder. Raises DataError."""
    try:
        return Path(given).expanduser()
    except RuntimeError as error:
        raise DataError(f"cannot find {given}: {error}") from error


def describe(size: int, sha256: str) -> str:
    """Put a file's contents in words that two files can be compared by."""
    return f"{size} bytes, sha256 {sha256}"


def check_file(folder: Path, file: DataFile) -> FileStatus:
    """Compare the file in `folder` with what it should be, reading all of it."""
    path = folder / file.name
    expected = describe(file.size, file.sha256)
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            found = describe(size, hashlib.file_digest(stream, "sha256").hexdigest())
    except FileNotFoundError:
        found = "only its .gz, not yet unpacked" if _gz(folder, file).exists() else "no file"
        return FileStatus(file, path, "missing", expected, found)
    except OSError as error:
        found = f"a file that cannot be read: {error.strerror}"
        return FileStatus(file, path, "damaged", expected, found)
    return FileStatus(file, path, "ok" if found == expected else "damaged", expected, found)


def make_folder(folder: Path) -> None:
    """Make the folder and its parents unless they are there."""
    try:
        durable.make_folder(folder)
    except durable.DurabilityError as error:
        raise cannot_write(folder, error) from error


def place(folder: Path, file: DataFile, chunks: Iterable[bytes]) -> None:
    """Write `chunks` to the file's place in `folder`, once they prove to be that file.

    The file appears whole or not at all, also when two processes place it at the same time.
    Raises WrongContentsError if they are not, having taken at most one chunk too many. Whoever
    makes the chunks reports trouble as SourceError: an OSError here is taken for a full disk.
    """
    try:
        durable.write_atomically(folder / file.name, _verified(file, chunks))
    except durable.DurabilityError as error:
        raise cannot_write(folder, error) from error


def unpack_local_gz(folder: Path, file: DataFile) -> bool:
    """Place the file from the `.gz` that a user put beside its place; False if there is none."""
    path = _gz(folder, file)
    try:
        with path.open("rb") as stream:
            place(folder, file, gunzip(stream))
    except FileNotFoundError:
        return False
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    except WrongContentsError as error:
        raise DataError(
            f"{path} is damaged: {error}. Replace it, or remove it to have the file downloaded."
        ) from error
    return True


def gunzip(stream: IO[bytes]) -> Iterator[bytes]:
    """Decompress piece by piece, so that whoever reads decides when it is too much."""
    with GzipFile(fileobj=stream, mode="rb") as unzipped:
        while True:
            try:
                chunk = unzipped.read(CHUNK)
            except (OSError, EOFError, zlib.error) as error:
                raise WrongContentsError(f"not a whole gzip file: {error}") from error
            if not chunk:
                return
            yield chunk


def cannot_write(folder: Path, error: OSError) -> DataError:
    """Make the error for a cache that cannot be written; no other source would mend it."""
    reason = error.__cause__ if isinstance(error.__cause__, OSError) else error
    return DataError(
        f"cannot write to {folder}: {reason.strerror or reason}. Free some space or mend the "
        f"permissions, or set REMASK_DATA to another folder."
    )


def _verified(file: DataFile, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The chunks, as far as they can be the file's; raises at the end unless they were."""
    digest = hashlib.sha256()
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > file.size:
            raise WrongContentsError(f"{file.name} is larger than its {file.size} bytes")
        digest.update(chunk)
        yield chunk
    expected, found = describe(file.size, file.sha256), describe(size, digest.hexdigest())
    if found != expected:
        raise WrongContentsError(f"{file.name}: expected {expected}; found {found}")


def _gz(folder: Path, file: DataFile) -> Path:
    return folder / f"{file.name}.gz"
