"""Files whose contents are known in advance: describing, hashing and placing them."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from remask import durable
from remask.errors import RemaskError

CHUNK = 1 << 20

Progress = Callable[[str, int, int | None], None]
"""Called with a file's name, the bytes that are there, and the bytes it will have if known."""


class DataError(RemaskError):
    """Data is missing, damaged or out of reach; the message says where, and what to do."""


class SourceError(Exception):
    """One source could not give a file; the next source may."""


class NothingThereError(SourceError):
    """A folder has nothing of the dataset in it."""


class WrongContentsError(SourceError):
    """A source gave something other than the file that was wanted."""


@dataclass(frozen=True)
class DataFile:
    """A file by name and by contents."""

    name: str
    sha256: str
    size: int

    def __str__(self) -> str:
        """Give name, size and checksum, as messages print them."""
        return f"{self.name} ({self.contents})"

    @property
    def contents(self) -> str:
        """What two files can be compared by."""
        return f"{self.size} bytes, sha256 {self.sha256}"


@dataclass(frozen=True)
class FileStatus:
    """What is at the place where a file belongs, against what should be there."""

    file: DataFile
    path: Path
    state: Literal["ok", "missing", "damaged"]
    expected: str
    found: str


class Hashed:
    """The pieces of a file on their way to the disk, and what has passed by so far."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces, self._digest = pieces, hashlib.sha256()
        self.size = 0

    def __iter__(self) -> Iterator[bytes]:
        """Hand the pieces on."""
        for piece in self._pieces:
            self._digest.update(piece)
            self.size += len(piece)
            yield piece

    def file(self, name: str) -> DataFile:
        """Describe the file that they make."""
        return DataFile(name, self._digest.hexdigest(), self.size)


def place(folder: Path, file: DataFile, pieces: Iterable[bytes]) -> None:
    """Write the pieces to the file's place in `folder`, once they prove to be that file.

    The file appears whole or not at all. Raises WrongContentsError.
    """

    def proved() -> Iterator[bytes]:
        hashed = Hashed(pieces)
        yield from hashed
        found = hashed.file(file.name)
        if found != file:
            raise WrongContentsError(
                f"{file.name}: expected {file.contents}; found {found.contents}"
            )

    durable.write_atomically(folder / file.name, proved())


def users_path(given: durable.AnyPath) -> Path:
    """The place that a user means, `~` being their home folder. Raises DataError."""
    try:
        return Path(given).expanduser()
    except RuntimeError as error:
        raise DataError(f"cannot find {given}: {error}") from error
