"""Files from a web server; a download that breaks off is resumed by the next try.

Why not pooch: its downloads start over when they break off, have no limit in size or time, and
take no lock; it unpacks archives to the disk, however large they grow. The code of ours that it
could replace comes to about 30 lines, for seven packages that it brings along.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from remask.datasets.files import Progress, SourceError, WrongContentsError
from remask.datasets.originals import Archive, Originals, gunzipped

TIMEOUT = 10.0
"""Seconds to wait for the connection, and for each next piece."""
PATIENCE = 60.0
"""Seconds that a download may take beyond those that it takes at the slowest speed."""
_SLOWEST = 20_000  # bytes per second
# Small, because a connection that breaks takes the piece it was in with it.
_PIECE = 1 << 16


@dataclass(frozen=True)
class WebArchive:
    """An archive at its address."""

    archive: Archive

    def __str__(self) -> str:
        """Give the address."""
        return self.archive.url

    @contextmanager
    def originals(self, folder: Path, progress: Progress) -> Iterator[Originals]:
        """Download the archive to NAME.part in `folder` and open it there."""
        part = folder / f"{self.archive.name}.part"
        download(self.archive.url, part, self.archive.size, progress)
        with self.archive.opened(part, folder) as originals:
            yield originals


@dataclass(frozen=True)
class GzipMirror:
    """A folder on the web that has each file as NAME.gz; `url` ends with a slash."""

    url: str

    def __str__(self) -> str:
        """Give the address."""
        return self.url

    @contextmanager
    def originals(self, folder: Path, progress: Progress) -> Iterator[Originals]:
        """Download a file to NAME.gz.part in `folder` when it is opened."""

        def opened(name: str, most: int) -> IO[bytes]:
            part = folder / f"{name}.gz.part"
            # Deflate grows what it cannot compress by far less than this.
            download(f"{self.url}{name}.gz", part, most + most // 100 + 1024, progress)
            return gunzipped(part)

        yield Originals(opened)


def download(url: str, part: Path, limit: int, progress: Progress) -> None:
    """Bring the file NAME.part from the length it has to the whole of what is at the address.

    Whether that is what it should be, a checksum must tell: what an earlier try left may be of
    another file. More than `limit` bytes are never taken. A server that is far too slow is given
    up; what it sent stays, and is resumed.
    """
    name = part.name.removesuffix(".part")
    deadline = time.monotonic() + PATIENCE + limit / _SLOWEST
    start = part.stat().st_size if part.exists() else 0
    if start >= limit:
        return
    request = Request(url, headers={"Range": f"bytes={start}-"} if start else {})
    with _opened(request, name) as response:
        if response is None:
            return
        resumes = response.status == HTTPStatus.PARTIAL_CONTENT
        done = start if resumes else 0
        length = response.headers["Content-Length"]
        total = done + int(length) if length is not None and length.isdecimal() else None
        with part.open("ab" if resumes else "wb") as stream:
            while piece := _received(response, name):
                done += len(piece)
                if time.monotonic() > deadline:
                    raise SourceError(
                        f"{name}: too slow, {done} bytes by the time that all should be there; "
                        f"run the same command again to go on from them"
                    )
                if done > limit:
                    raise WrongContentsError(f"{name} is too large: over {limit} bytes")
                stream.write(piece)
                stream.flush()
                progress(name, done, total)
    # http.client does not mind a body that ends early when it is read in pieces.
    if total is not None and done < total:
        raise SourceError(f"{name}: broke off after {done} of {total} bytes")


@contextmanager
def _opened(request: Request, name: str) -> Iterator[HTTPResponse | None]:
    """The response; None if the server has nothing beyond what is there already."""
    try:
        response = urlopen(request, timeout=TIMEOUT)
    except HTTPError as error:
        if error.code != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise SourceError(f"{name}: HTTP {error.code} {error.reason}") from error
        yield None
        return
    except URLError as error:
        raise SourceError(f"{name}: {error.reason}") from error
    except (HTTPException, OSError) as error:
        raise SourceError(f"{name}: {error}") from error
    with response:
        yield response


def _received(response: HTTPResponse, name: str) -> bytes:
    """What has come, without waiting for a whole piece; nothing at the end."""
    try:
        return response.read1(_PIECE)
    except (HTTPException, OSError) as error:
        raise SourceError(f"{name}: {error}") from error
