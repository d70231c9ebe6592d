"""Samples that stay on disk: rows that are fetched by number, and never read as a whole."""

import math
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
_AT_ONCE = 128  # rows; each may map a huge page, 2 MB


class SampleFileError(RemaskError):
    """An unusable file of samples."""


class StoredRows(ABC):
    """Inputs [N, *shape] that are not in memory. They must not change while they are used."""

    shape: tuple[int, ...]
    """[N, *shape of one input]."""
    dtype: torch.dtype
    """uint8, float32 or int64."""

    def __len__(self) -> int:
        return self.shape[0]

    @abstractmethod
    def read(self, numbers: NDArray[np.int64]) -> Array:
        """Copy the rows with these numbers: [n] -> [n, *shape of one input]."""

    def take(self, numbers: Tensor, device: torch.device | str = "cpu") -> Tensor:
        """Copy rows to a device: int64 [...] -> [..., *shape of one input]."""
        found = torch.from_numpy(self.read(numbers.flatten().cpu().numpy()))
        return found.view(*numbers.shape, *self.shape[1:]).to(device)

    def take_stacked(self, numbers: Tensor, device: torch.device | str = "cpu") -> Tensor:
        """As `take`, for rows of each trial [S, n]; if all trials share them, they are read once.

        The result is then one copy that is seen S times: it must not be written to.
        """
        if not bool((numbers == numbers[:1]).all()):
            return self.take(numbers, device)
        found = self.take(numbers[0], device)
        return found.expand(len(numbers), *found.shape)

    def chunks(self) -> Iterator[Tensor]:
        """Yield all rows in order, a few MB at a time."""
        size = max(1, _CHUNK // (math.prod(self.shape[1:]) * self.dtype.itemsize))
        for start in range(0, len(self), size):
            numbers = np.arange(start, min(start + size, len(self)))
            yield torch.from_numpy(self.read(numbers))


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
        self._since_release = 0  # rows that were read
        self.shape, self.dtype = shape, _TYPES[kind]
        self._map.madvise(mmap.MADV_RANDOM)  # no reading ahead: the next row is anywhere

    def read(self, numbers: NDArray[np.int64]) -> Array:
        """Copy the rows with these numbers; of a large file, little stays in memory."""
        blocks = []
        for start in range(0, max(len(numbers), 1), _AT_ONCE):
            blocks.append(np.take(self._rows, numbers[start : start + _AT_ONCE], axis=0))
            self._since_release += len(blocks[-1])
            if self._since_release >= _AT_ONCE and len(self._map) > _MOST_RESIDENT:
                self._since_release = 0
                self._map.madvise(mmap.MADV_DONTNEED)
        return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)


class JoinedRows(StoredRows):
    """Rows of several places, one after the other; tensors are on the host."""

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

    def read(self, numbers: NDArray[np.int64]) -> Array:
        """Copy the rows with these numbers."""
        owners = np.searchsorted(self._ends, numbers, side="right")
        found: Array = torch.empty((len(numbers), *self.shape[1:]), dtype=self.dtype).numpy()
        for owner in np.unique(owners).tolist():
            mine = owners == owner
            part = self._parts[owner]
            own = numbers[mine] - (self._ends[owner] - len(part))
            if isinstance(part, StoredRows):
                found[mine] = part.read(own)
            else:
                found[mine] = part.index_select(0, torch.from_numpy(own)).numpy()
        return found


def fetch(inputs: Tensor | StoredRows, places: Tensor, device: torch.device) -> Tensor:
    """Return the inputs in some places, int64 [...], on a device: [..., *shape of one input]."""
    if isinstance(inputs, StoredRows):
        return inputs.take(places, device)
    places = places.to(inputs.device)
    found = inputs.index_select(0, places.flatten())  # 20 times as fast as inputs[places]
    return found.view(*places.shape, *inputs.shape[1:]).to(device)
