"""Files from a web server: downloads that resume, and mirrors that offer files as NAME.gz."""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from remask.datasets.files import (
    DataFile,
    SourceError,
    WrongContentsError,
    cannot_write,
    gunzip,
    place,
)

if sys.platform != "win32":
    import fcntl

Progress = Callable[[str, int, int | None], None]
"""Called with a file's name, the bytes that are there, and the bytes it will have if known."""

# Small, because a connection that breaks takes the piece it was in with it.
_PIECE = 1 << 16
_SLOWEST = 20_000  # bytes per second


@dataclass(frozen=True)
class GzipMirror:
    """A folder on the web; `url` ends with a slash."""

    url: str
    timeout: float = 10.0
    """Seconds to wait for the connection, and for each next piece."""
    patience: float = 60.0
    """Seconds that a download may take beyond those that it takes at the slowest speed."""

    def __str__(self) -> str:
        """Give the address."""
        return self.url

    def obtain(
        self, files: Sequence[DataFile], folder: Path, progress: Progress
    ) -> Iterator[DataFile]:
        """Place the files in `folder`, yielding each; the first that fails ends it."""
        for file in files:
            with partial_file(folder, f"{file.name}.gz") as partial:
                self._obtain_one(file, folder, partial, progress)
            yield file

    def _obtain_one(
        self, file: DataFile, folder: Path, partial: IO[bytes], progress: Progress
    ) -> None:
        if partial.seek(0, os.SEEK_END) > 0:
            # What an earlier try left may be of another file, or the server may send another
            # range than asked for; the checksum tells.
            with suppress(WrongContentsError):
                self._download(file, folder, partial, progress)
                place(folder, file, _unzipped(partial))
                return
        partial.truncate(0)
        try:
            self._download(file, folder, partial, progress)
            place(folder, file, _unzipped(partial))
        except WrongContentsError:
            partial.truncate(0)  # nothing of it is worth resuming
            raise

    def _download(
        self, file: DataFile, folder: Path, partial: IO[bytes], progress: Progress
    ) -> None:
        # Deflate grows what it cannot compress by far less than this.
        limit = file.size + file.size // 100 + 1024
        name = f"{file.name}.gz"
        download = Download(f"{self.url}{name}", name, limit, f"a file of {file.size}")
        download.complete(
            folder,
            partial,
            lambda _, done, total: progress(file.name, done, total),
            timeout=self.timeout,
            patience=self.patience,
        )


@dataclass(frozen=True)
class Download:
    """A file on the web that shall not be larger than it may be."""

    url: str
    name: str
    """As messages and progress name it."""
    limit: int
    """The most bytes that are taken."""
    meant: str
    """What it should have been, for the message about one that is larger."""

    def complete(
        self,
        folder: Path,
        partial: IO[bytes],
        progress: Progress,
        *,
        timeout: float,
        patience: float,
    ) -> None:
        """Bring `partial` from the length it has to the whole of the file.

        A server that sends a byte now and then, for ever, is left after `patience` seconds and
        those that the file takes at the slowest speed; what it sent stays, and is resumed.
        """
        deadline = time.monotonic() + patience + self.limit / _SLOWEST
        start = partial.seek(0, os.SEEK_END)
        request = Request(self.url, headers={"Range": f"bytes={start}-"} if start else {})
        try:
            with urlopen(request, timeout=timeout) as response:
                if start and response.status != HTTPStatus.PARTIAL_CONTENT:
                    partial.truncate(0)  # the server sends all of it again
                self._append(response, folder, partial, progress, deadline)
        except HTTPError as error:
            if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                raise WrongContentsError(f"{self.name}: nothing left to resume") from error
            raise SourceError(f"{self.name}: HTTP {error.code} {error.reason}") from error
        except URLError as error:
            raise SourceError(f"{self.name}: {error.reason}") from error
        except (HTTPException, OSError) as error:
            raise SourceError(f"{self.name}: {error}") from error

    def _append(
        self,
        response: HTTPResponse,
        folder: Path,
        partial: IO[bytes],
        progress: Progress,
        deadline: float,
    ) -> None:
        """Write the response behind what `partial` holds already."""
        done = partial.seek(0, os.SEEK_END)
        length = response.headers["Content-Length"]
        total = done + int(length) if length is not None and length.isdecimal() else None
        while piece := response.read1(_PIECE):  # what has come, without waiting for a whole piece
            done += len(piece)
            if time.monotonic() > deadline:
                raise SourceError(
                    f"{self.name}: too slow, {done} bytes by the time that all should be there; "
                    f"run the same command again to go on from them"
                )
            if done > self.limit:
                raise WrongContentsError(
                    f"{self.name} is too large: over {self.limit} bytes for {self.meant}"
                )
            try:
                partial.write(piece)
                partial.flush()
            except OSError as error:
                raise cannot_write(folder, error) from error
            progress(self.name, done, total)
        # http.client does not mind a body that ends early when it is read in pieces.
        if total is not None and done < total:
            raise SourceError(f"{self.name}: broke off after {done} of {total} bytes")


def _unzipped(partial: IO[bytes]) -> Iterator[bytes]:
    partial.seek(0)
    yield from gunzip(partial)


@contextmanager
def partial_file(folder: Path, name: str) -> Iterator[IO[bytes]]:
    """Open NAME.part for resuming, or an unnamed file while another process works on that one.

    NAME.part stays when the download breaks off and goes when it is done with or empty.
    """
    path = folder / f"{name}.part"
    try:
        with path.open("a+b") as stream:
            if not _lock(stream):
                with tempfile.TemporaryFile(dir=folder) as unnamed:
                    yield unnamed
                return
            finished = False
            try:
                yield stream
                finished = True
            finally:
                if finished or os.fstat(stream.fileno()).st_size == 0:
                    path.unlink(missing_ok=True)
    except OSError as error:
        raise cannot_write(folder, error) from error


def _lock(stream: IO[bytes]) -> bool:
    """Take the file for this process until it is closed; False when another has it."""
    if sys.platform == "win32":
        return False
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    # The other process may have finished and removed the file between our open and our lock.
    return os.fstat(stream.fileno()).st_nlink > 0
