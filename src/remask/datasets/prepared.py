"""Datasets that are turned into uint8 arrays once, and mapped into memory from then on.

Each array is a separate .npy file. The manifest, which lists them with their checksums, is
written last: without it nothing counts, so an interrupted preparation is never taken for a
finished one. Every preparation writes files of new names, so a finished one stays whole until the
manifest of the next takes its place.
"""

import io
import json
import math
import re
import secrets
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from remask import durable
from remask.datasets.dataset import Arrays, Dataset
from remask.datasets.files import DataError, DataFile, FileStatus, Hashed, Progress
from remask.datasets.originals import Originals, Source
from remask.datasets.stamps import check_files

_MANIFEST = DataFile("manifest.json", sha256="", size=0)
_ARRAY_FILE = re.compile(r"[a-z_]+\.[0-9a-f]{16}\.npy")
_FORMAT = 1
_MAX_BYTES = 1 << 16

Shape = tuple[int, ...]
Manifest = Mapping[str, tuple[DataFile, Shape]]
"""The file and the shape of each array."""


@dataclass(frozen=True, kw_only=True)
class ArrayDataset(Dataset):
    """A dataset that is kept as arrays; the first of its versions is the published one."""

    files: tuple[DataFile, ...] = (_MANIFEST,)
    """The manifest is there when all else is."""

    @abstractmethod
    def shapes(self) -> dict[str, Shape]:
        """Give the name and shape of every array."""

    @abstractmethod
    def arrays(self, originals: Originals) -> Iterator[tuple[str, Iterable[bytes]]]:
        """Give the bytes of each array, in pieces, to be used up before the next. May raise."""

    @abstractmethod
    def differences(self, arrays: Arrays) -> Iterator[tuple[str, str, str]]:
        """Compare with the published checksums: (array, expected, found) where they differ."""

    def check(self, folder: Path, *, rehash: bool) -> list[FileStatus]:
        """Compare every array with the manifest, if `rehash` also with the published checksums."""
        path = folder / _MANIFEST.name
        expected = "the list of the prepared arrays"
        try:
            manifest = self._manifest(folder)
        except ValueError as error:
            return [FileStatus(_MANIFEST, path, "damaged", expected, str(error))]
        if manifest is None:
            return [FileStatus(_MANIFEST, path, "missing", expected, "no file")]
        statuses = check_files(folder, [file for file, _ in manifest.values()], rehash=rehash)
        if not rehash or any(status.state != "ok" for status in statuses):
            return statuses
        for array, published, found in self.differences(self.read(folder)):
            file = manifest[array][0]
            damaged = FileStatus(file, folder / file.name, "damaged", published, found)
            statuses.append(damaged)
        return statuses

    def store(
        self,
        originals: Originals,
        source: Source,
        wanted: list[DataFile],
        folder: Path,
        progress: Progress,
    ) -> None:
        """Write all arrays and their manifest."""
        token = secrets.token_hex(8)
        try:
            arrays = {
                name: self._write(name, pieces, f"{name}.{token}.npy", folder, progress)
                for name, pieces in self.arrays(originals)
            }
            assert arrays.keys() == self.shapes().keys(), "every array that is promised is given"
            manifest = {
                "format": _FORMAT,
                "dataset": self.name,
                "source": str(source),
                "arrays": arrays,
            }
            durable.write_atomically(
                folder / _MANIFEST.name, json.dumps(manifest, indent=2).encode()
            )
            wanted.clear()
        finally:
            self._remove_unlisted(folder)

    def read(self, folder: Path) -> Arrays:
        """Map the arrays into memory, uint8, copy on write."""
        arrays = {}
        for name, (file, shape) in (self._manifest(folder) or {}).items():
            path = folder / file.name
            try:
                array = np.load(path, mmap_mode="c", allow_pickle=False)
            except (OSError, ValueError) as error:
                raise DataError(f"cannot map {path}: {error}") from error
            if array.dtype != np.uint8 or array.shape != shape:
                raise DataError(f"{path} holds {array.dtype} {list(array.shape)}, not {shape}")
            arrays[name] = array
        return arrays

    def _write(
        self, name: str, pieces: Iterable[bytes], file: str, folder: Path, progress: Progress
    ) -> dict[str, Any]:
        """Write a .npy file, and describe it as the manifest does."""
        shape = self.shapes()[name]
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            header, {"descr": "|u1", "fortran_order": False, "shape": shape}
        )
        total = len(header.getvalue()) + math.prod(shape)

        def reported() -> Iterator[bytes]:
            yield header.getvalue()
            for piece in pieces:
                yield piece
                progress(f"{self.name} {name}", hashed.size, total)

        hashed = Hashed(reported())
        durable.write_atomically(folder / file, hashed)
        assert hashed.size == total, "there are as many bytes as the shape promises"
        sha256 = hashed.file(file).sha256
        return {"file": file, "sha256": sha256, "size": total, "shape": list(shape)}

    def _manifest(self, folder: Path) -> Manifest | None:
        """Read what has been prepared; None if nothing has. Raises ValueError if it is damaged."""
        try:
            manifest = json.loads(durable.read_limited(folder / _MANIFEST.name, _MAX_BYTES))
            if (manifest["format"], manifest["dataset"]) != (_FORMAT, self.name):
                raise ValueError("it describes something else")
            arrays = manifest["arrays"]
            return {name: _entry(arrays[name], shape) for name, shape in self.shapes().items()}
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(str(error)) from error

    def _remove_unlisted(self, folder: Path) -> None:
        """Remove the arrays of preparations that failed, or that another has taken the place of."""
        try:
            listed = {file.name for file, _ in (self._manifest(folder) or {}).values()}
        except ValueError:
            return  # there is no telling what it lists
        for path in folder.glob("*.npy"):
            if path.name not in listed and _ARRAY_FILE.fullmatch(path.name):
                durable.remove_quietly(path)


def _entry(entry: Any, shape: Shape) -> tuple[DataFile, Shape]:
    match entry:
        case {"file": str(file), "sha256": str(sha256), "size": int(size), "shape": list(found)}:
            # The name becomes a path, so it must not lead elsewhere.
            if _ARRAY_FILE.fullmatch(file) and tuple(found) == shape:
                return DataFile(file, sha256, size), shape
    raise ValueError(f"no array of shape {list(shape)} in {str(entry)[:200]}")
