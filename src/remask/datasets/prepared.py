"""Datasets that are turned into uint8 arrays once, and mapped into memory from then on.

Each array is a .npy file of its own. The manifest, which lists them with their checksums, is
written last: without it nothing counts, so an interrupted preparation is never taken for a
finished one. Every preparation writes files of new names, so a finished one stays whole until the
manifest of the next takes its place.
"""

import hashlib
import io
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from remask import durable
from remask.datasets.archives import Archive, Originals
from remask.datasets.files import (
    DataError,
    DataFile,
    FileStatus,
    SourceError,
    cannot_write,
    check_file,
    make_folder,
)
from remask.datasets.local import LocalOriginals, Version
from remask.datasets.manifest import (
    ARRAY_FILE,
    MANIFEST,
    PreparedArray,
    read_manifest,
    remedy,
    write_manifest,
)
from remask.datasets.mirror import Progress
from remask.locks import Lock

Arrays = Mapping[str, npt.NDArray[np.uint8]]

# Longer than the slowest preparation: whoever waits wants the data, not an error.
_PATIENCE = 60 * 60.0


@dataclass(frozen=True)
class NewArray:
    """An array to be written: its bytes may come in pieces of any size."""

    name: str
    shape: tuple[int, ...]
    pieces: Iterable[bytes]


class Layout(Protocol):
    """How the original files become arrays."""

    @property
    def marker(self) -> str:
        """The original file by which a folder is recognised."""
        ...

    def require(self) -> None:
        """Raise DataError if something that `arrays` needs is not installed."""
        ...

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Give the name and shape of every array."""
        ...

    def arrays(self, originals: Originals) -> Iterator[NewArray]:
        """Give the arrays in turn; each must be used up before the next. Raises SourceError."""
        ...

    def differences(self, arrays: Arrays) -> Iterator[tuple[str, str, str]]:
        """Compare with the published checksums: (array, expected, found) where they differ."""
        ...


class OriginalsSource(Protocol):
    """A way to get the original files; `str(source)` names it in messages."""

    def originals(self, folder: Path, progress: Progress) -> AbstractContextManager[Originals]:
        """Open the originals, using `folder` for what has to be stored. Raises SourceError."""
        ...


@dataclass(frozen=True)
class Preparation:
    """How a dataset is prepared, and the sources to try for its originals, in order."""

    layout: Layout
    archive: Archive
    """As the authors publish it; users may have it already."""
    url: str
    """Where users find it."""
    sources: tuple[OriginalsSource, ...]
    other_versions: tuple[Version, ...] = ()
    """Other forms of it that users may have, after the one that the layout is of."""

    def from_user(self, path: Path) -> LocalOriginals:
        """Make the source for the folder or archive that a user has."""
        published = Version(self.archive, self.layout.marker)
        return LocalOriginals(path, (published, *self.other_versions))


def prepare(
    name: str,
    preparation: Preparation,
    folder: Path,
    *,
    data: Path | None,
    force: bool,
    progress: Progress,
) -> None:
    """Make sure that the arrays are there and undamaged. Raises DataError.

    With `data` nothing is downloaded: it has the originals, or it is an error.
    """
    if not force and _is_finished(name, preparation, folder):
        return
    preparation.layout.require()
    make_folder(folder)
    try:
        with Lock(folder / ".lock", timeout=_PATIENCE):
            if not force and _is_finished(name, preparation, folder):
                return  # by another process, while this one waited
            _prepare(name, preparation, folder, data, progress)
    except durable.DurabilityError as error:
        raise cannot_write(folder, error) from error


def verify_prepared(name: str, preparation: Preparation, folder: Path) -> list[FileStatus]:
    """Compare every array with the manifest, and all with the published checksums if known."""
    try:
        manifest = read_manifest(name, preparation.layout.shapes(), folder)
    except DataError as error:
        return [_manifest_status(folder, "damaged", str(error))]
    if manifest is None:
        return [_manifest_status(folder, "missing", "no file")]
    statuses = [check_file(folder, entry.file) for entry in manifest.values()]
    if any(status.state != "ok" for status in statuses):
        return statuses
    arrays = _map(manifest, folder)
    return statuses + [
        FileStatus(entry.file, folder / entry.file.name, "damaged", expected, found)
        for array, expected, found in preparation.layout.differences(arrays)
        for entry in [manifest[array]]
    ]


def map_arrays(name: str, preparation: Preparation, folder: Path) -> Arrays:
    """Map the prepared arrays into memory, uint8; processes that do so share one copy.

    The files are safe from writes to the arrays (copy on write).
    """
    manifest = read_manifest(name, preparation.layout.shapes(), folder)
    if manifest is None:
        raise DataError(f"{folder} holds no finished {name}. {remedy(name)}")
    return _map(manifest, folder)


def _is_finished(name: str, preparation: Preparation, folder: Path) -> bool:
    manifest = read_manifest(name, preparation.layout.shapes(), folder)
    for entry in (manifest or {}).values():
        status = check_file(folder, entry.file)
        if status.state != "ok":
            raise DataError(
                f"{status.path} is {status.state}.\n  expected: {status.expected}\n"
                f"  found:    {status.found}\nIt was left as it is. {remedy(name)}"
            )
    return manifest is not None


def _prepare(
    name: str, preparation: Preparation, folder: Path, data: Path | None, progress: Progress
) -> None:
    durable.remove_stale_temporaries(folder)
    # What somebody has put into the folder by hand is meant to be used.
    supplied = preparation.from_user(folder if data is None else data)
    by_hand = data is not None or supplied.is_there()
    sources: Sequence[OriginalsSource] = [supplied] if by_hand else preparation.sources
    failures: list[str] = []
    for source in sources:
        try:
            with source.originals(folder, progress) as originals:
                entries = _write_arrays(name, preparation.layout, originals, folder, progress)
                write_manifest(name, str(source), entries, folder)
        except SourceError as error:
            if by_hand:
                raise DataError(
                    f"cannot take {name} from {source}: {error}. Replace what is wrong, or do "
                    f"without it to have {name} downloaded."
                ) from error
            failures.append(f"  {source}: {error}")
        else:
            return
        finally:
            _remove_unlisted(name, preparation.layout, folder)
    raise DataError(_out_of_reach(name, preparation, folder, failures))


def _write_arrays(
    name: str, layout: Layout, originals: Originals, folder: Path, progress: Progress
) -> dict[str, PreparedArray]:
    token = secrets.token_hex(8)
    shapes = layout.shapes()
    entries = {}
    for array in layout.arrays(originals):
        assert array.shape == shapes[array.name], "a layout keeps the shapes that it promises"
        path = folder / f"{array.name}.{token}.npy"
        digest = _Digest(f"{name} {array.name}", array, progress)
        durable.write_atomically(path, digest.pieces())
        file = DataFile(path.name, digest.sha256.hexdigest(), digest.size)
        entries[array.name] = PreparedArray(file, array.shape)
    assert entries.keys() == shapes.keys(), "a layout gives every array that it promises"
    return entries


class _Digest:
    """The bytes of a .npy file, and their checksum once they have all passed."""

    def __init__(self, label: str, array: NewArray, progress: Progress) -> None:
        self._label, self._array, self._progress = label, array, progress
        self.sha256 = hashlib.sha256()
        self.size = 0

    def pieces(self) -> Iterator[bytes]:
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            header, {"descr": "|u1", "fortran_order": False, "shape": self._array.shape}
        )
        total = len(header.getvalue()) + int(np.prod(self._array.shape, dtype=np.int64))
        yield self._passed(header.getvalue())
        for piece in self._array.pieces:
            yield self._passed(piece)
            self._progress(self._label, self.size, total)
        assert self.size == total, "a layout gives as many bytes as its shapes promise"

    def _passed(self, piece: bytes) -> bytes:
        self.sha256.update(piece)
        self.size += len(piece)
        return piece


def _map(manifest: Mapping[str, PreparedArray], folder: Path) -> Arrays:
    arrays = {}
    for name, entry in manifest.items():
        path = folder / entry.file.name
        try:
            array = np.load(path, mmap_mode="c", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise DataError(f"cannot map {path}: {error}") from error
        if array.dtype != np.uint8 or array.shape != entry.shape:
            raise DataError(f"{path} holds {array.dtype} {list(array.shape)}, not what it should")
        arrays[name] = array
    return arrays


def _remove_unlisted(name: str, layout: Layout, folder: Path) -> None:
    """Remove the arrays of preparations that failed, or that another has taken the place of."""
    try:
        manifest = read_manifest(name, layout.shapes(), folder)
    except DataError:
        return  # what it lists cannot be told
    listed = {entry.file.name for entry in (manifest or {}).values()}
    for path in folder.glob("*.npy"):
        if path.name not in listed and ARRAY_FILE.fullmatch(path.name):
            durable.remove_quietly(path)


def _manifest_status(folder: Path, state: Any, found: str) -> FileStatus:
    file = DataFile(MANIFEST, sha256="", size=0)
    expected = "the list of the prepared arrays"
    return FileStatus(file, folder / MANIFEST, state, expected, found)


def _out_of_reach(
    name: str, preparation: Preparation, folder: Path, failures: Sequence[str]
) -> str:
    tried = "\n".join(failures) or "  it has no sources"
    archive = preparation.archive
    return (
        f"could not get {name}; this was tried:\n{tried}\n"
        f"To supply it by hand, get {archive.name} ({archive.size} bytes, md5 {archive.md5}) from\n"
        f"  {preparation.url}\n"
        f"put it, or the folder {archive.top} that it unpacks to, into\n{folder}\n"
        f"and run the same command again; or give its place to load_benchmark as data=."
    )
