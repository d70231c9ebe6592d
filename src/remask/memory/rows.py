"""Samples that stay on disk: rows that are fetched by number, and never read as a whole."""

import mmap
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from remask.errors import RemaskError
from remask.files import AnyPath

Array = NDArray[Any]

_TYPES = {
    np.dtype(np.uint8): torch.uint8,
    np.dtype(np.float32): torch.float32,
    np.dtype(np.int64): torch.int64,
}
_CHUNK = 16 << 20
_MOST_RESIDENT = 256 << 20
_AROUND = 2 << 20  # what an operating system may map where a row is touched: a huge page
_AT_ONCE = _MOST_RESIDENT // _AROUND  # rows


class SampleFileError(RemaskError):
    """A file of samples that cannot be used; the message says why."""


class StoredRows(ABC):
    """Inputs [N, *shape] that are not in memory. They must not change while they are used."""

    shape: tuple[int, ...]
    """[N, *shape of one input]."""
    dtype: torch.dtype
    """uint8, float32 or int64."""

    def __len__(self) -> int:
        return self.shape[0]

    _since_release = 0  # rows that were read

    @abstractmethod
    def copy_rows(self, numbers: NDArray[np.int64]) -> Array:
        """Copies of the rows with these numbers: [n] -> [n, *shape of one input]."""

    @abstractmethod
    def release(self) -> None:
        """Let go of what was mapped; it is mapped again where it is read."""

    def read(self, numbers: NDArray[np.int64]) -> Array:
        """Copies of rows, as `copy_rows`; of what was mapped for it, little stays in memory."""
        blocks = []
        for start in range(0, max(len(numbers), 1), _AT_ONCE):
            blocks.append(self.copy_rows(numbers[start : start + _AT_ONCE]))
            self._since_release += len(blocks[-1])
            if self._since_release >= _AT_ONCE:
                self._since_release = 0
                self.release()
        return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)

    def take(self, numbers: Tensor, device: torch.device | str = "cpu") -> Tensor:
        """Copies of rows on a device: int64 [...] -> [..., *shape of one input]."""
        found = torch.from_numpy(self.read(numbers.flatten().cpu().numpy()))
        return found.view(*numbers.shape, *self.shape[1:]).to(device)

    def take_stacked(self, numbers: Tensor, device: torch.device | str = "cpu") -> Tensor:
        """As `take`, of rows for each trial [S, n]; what all trials share is read once.

        Then the result is one copy that is seen S times: it must not be written to.
        """
        if not bool((numbers == numbers[:1]).all()):
            return self.take(numbers, device)
        found = self.take(numbers[0], device)
        return found.expand(len(numbers), *found.shape)

    def chunks(self) -> Iterator[Tensor]:
        """All rows in their order, a few MB at a time."""
        size = max(1, _CHUNK // _row_bytes(self))
        for start in range(0, len(self), size):
            yield torch.from_numpy(self.read(np.arange(start, min(start + size, len(self)))))


class MappedRows(StoredRows):
    """The rows of a uint8, float32 or int64 array in an .npy file, which is memory-mapped."""

    def __init__(self, path: AnyPath) -> None:
        """Open a file; raises SampleFileError if it is not such an array."""
        try:
            mapped = np.lib.format.open_memmap(path, mode="r")
            kind, shape = mapped.dtype, mapped.shape
            if kind not in _TYPES or not shape or not mapped.flags.c_contiguous:
                raise ValueError(
                    f"it has {kind} {list(shape)}, not rows of uint8, float32 or int64"
                )
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise SampleFileError(f"cannot use the samples in {path}: {reason}") from error
        self._map: mmap.mmap = mapped._mmap  # type: ignore[attr-defined]
        self._rows: Array = mapped.view(np.ndarray)
        self.shape, self.dtype = shape, _TYPES[kind]
        _advise(self._map, "MADV_RANDOM")  # no reading ahead: the next row is anywhere

    def copy_rows(self, numbers: NDArray[np.int64]) -> Array:
        """Copies of the rows with these numbers."""
        found: Array = np.take(self._rows, numbers, axis=0)
        return found

    def release(self) -> None:
        """Let go of what was mapped; a small file may stay."""
        if len(self._map) > _MOST_RESIDENT:
            _advise(self._map, "MADV_DONTNEED")


class JoinedRows(StoredRows):
    """Rows of several places, one after the other, counted through; tensors are on the host."""

    def __init__(self, parts: Sequence[StoredRows | Tensor]) -> None:
        """Join at least one part; raises SampleFileError if they are not alike."""
        self._parts = list(parts)
        first = self._parts[0]
        for part in self._parts[1:]:
            if part.dtype != first.dtype or part.shape[1:] != first.shape[1:]:
                raise SampleFileError(
                    f"samples that are used together must be alike: {first.dtype} "
                    f"{list(first.shape[1:])} and {part.dtype} {list(part.shape[1:])} are not"
                )
        self._ends = np.cumsum([len(part) for part in self._parts])
        self.shape, self.dtype = (int(self._ends[-1]), *first.shape[1:]), first.dtype

    def copy_rows(self, numbers: NDArray[np.int64]) -> Array:
        """Copies of the rows with these numbers."""
        if len(self._parts) == 1:
            return _copied(self._parts[0], numbers)
        owners = np.searchsorted(self._ends, numbers, side="right")
        found: Array = torch.empty((len(numbers), *self.shape[1:]), dtype=self.dtype).numpy()
        for owner in np.unique(owners).tolist():
            mine = owners == owner
            part = self._parts[owner]
            found[mine] = _copied(part, numbers[mine] - (self._ends[owner] - len(part)))
        return found

    def release(self) -> None:
        """Let go of what was mapped."""
        for part in self._parts:
            if isinstance(part, StoredRows):
                part.release()


def fetch(inputs: Tensor | StoredRows, places: Tensor, device: torch.device) -> Tensor:
    """The inputs in some places, int64 [...], on a device: [..., *shape of one input]."""
    if isinstance(inputs, StoredRows):
        return inputs.take(places, device)
    places = places.to(inputs.device)
    found = inputs.index_select(0, places.flatten())  # 20 times as fast as inputs[places]
    return found.view(*places.shape, *inputs.shape[1:]).to(device)


def _copied(part: StoredRows | Tensor, numbers: NDArray[np.int64]) -> Array:
    if isinstance(part, StoredRows):
        return part.copy_rows(numbers)
    found: Array = part.index_select(0, torch.from_numpy(numbers)).numpy()
    return found


def _row_bytes(rows: StoredRows) -> int:
    return int(np.prod(rows.shape[1:])) * rows.dtype.itemsize


def _advise(mapped: mmap.mmap, name: str) -> None:
    """Give the operating system a hint, where it takes one."""
    if hasattr(mmap, name):
        mapped.madvise(getattr(mmap, name))
