"""The samples that a learner keeps: in segments, files that are written once and never changed.

A sample's number counts through the segments, in the order of the manifest. A visit writes one new
segment, of what it keeps of its own samples; segments of which less than half is still in use go
into it, and smaller ones. So there are few segments, and at least half of each is in use.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from remask.learner.folder import LearnerFolder
from remask.learner.heldout import SOURCES
from remask.learner.manifest import SegmentNote
from remask.learner.npy import mapped, npy_pieces
from remask.learner.state import MEMORY_LABELS, MEMORY_SOURCES
from remask.memory import EMPTY, JoinedRows, StoredRows

_ROWS_AT_ONCE = 64
_NOWHERE = -1
_NUMPY = {torch.uint8: "uint8", torch.float32: "float32", torch.int64: "int64"}


class ChosenRows(StoredRows):
    """Some of the rows of others, which stay where they are."""

    def __init__(self, rows: StoredRows, numbers: NDArray[np.int64]) -> None:
        self._rows, self._numbers = rows, numbers
        self.shape, self.dtype = (len(numbers), *rows.shape[1:]), rows.dtype

    def copy_rows(self, numbers: NDArray[np.int64]) -> NDArray[Any]:
        """Copies of the rows with these numbers."""
        return self._rows.copy_rows(self._numbers[numbers])

    def release(self) -> None:
        """Let go of what was mapped."""
        self._rows.release()


@dataclass(frozen=True)
class Rewritten:
    """The segments of the next manifest, and where samples are in them."""

    segments: tuple[SegmentNote, ...]
    renumber: Callable[[Tensor], Tensor]
    """From old numbers of samples in use, int64 [...], to new ones; what is not in use is 0."""

    def renumbered(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A state that knows its samples by their new numbers."""
        found = {**tensors, SOURCES: self.renumber(tensors[SOURCES])}
        if MEMORY_SOURCES in tensors:
            empty = tensors[MEMORY_LABELS].cpu() == EMPTY
            found[MEMORY_SOURCES] = self.renumber(
                tensors[MEMORY_SOURCES].masked_fill(empty, _NOWHERE)
            )
        return found


def open_segments(folder: LearnerFolder) -> list[StoredRows]:
    """The samples that are kept. Raises LearnerError if a file is damaged."""
    data = folder.manifest.data
    return [
        mapped(folder.check(note.file), (note.rows, *data.kept.shape), data.kept.dtype)
        for note in folder.manifest.segments
        if data is not None
    ]


def rewrite(
    folder: LearnerFolder, rows: JoinedRows | None, used: Tensor, *, all_anew: bool = False
) -> Rewritten:
    """Write what is in use and in no segment yet; and what is in segments that hardly are.

    `used` are the numbers of the samples in use, of `rows`: the segments', and behind them those of
    a visit. With `all_anew`, nothing that is not in use is left in any segment.
    """
    wanted = np.unique(used.numpy())
    ends = np.cumsum([0, *(segment.rows for segment in folder.manifest.segments)])
    lives = [wanted[(wanted >= start) & (wanted < end)] for start, end in pairwise(ends)]
    moved = wanted[wanted >= ends[-1]]
    left: list[int] = []
    for number in reversed(range(len(lives))):
        rows_there, live = folder.manifest.segments[number].rows, lives[number]
        if all_anew or 2 * len(live) < rows_there or len(live) <= len(moved):
            moved = np.concatenate([live, moved])
        else:
            left.append(number)
    kept = [folder.manifest.segments[number] for number in reversed(left)]
    # Old numbers, ascending, beside the new ones.
    shifts, start = [], 0
    for number in reversed(left):
        shifts.append(lives[number] - ends[number] + start)
        start += folder.manifest.segments[number].rows
    before = np.concatenate([*(lives[number] for number in reversed(left)), moved])
    after = np.concatenate([*shifts, start + np.arange(len(moved))])
    if len(moved):
        assert rows is not None
        kept.append(_write(folder, rows, moved))
    order = np.argsort(before)
    before, after = before[order].astype(np.int64), after[order].astype(np.int64)

    def renumber(numbers: Tensor) -> Tensor:
        if not len(before):
            return torch.zeros_like(numbers)
        found = np.searchsorted(before, numbers.numpy()).clip(max=len(before) - 1)
        return torch.from_numpy(np.where(before[found] == numbers.numpy(), after[found], 0))

    return Rewritten(tuple(kept), renumber)


def _write(folder: LearnerFolder, rows: StoredRows, numbers: NDArray[np.int64]) -> SegmentNote:
    def groups() -> Iterator[NDArray[Any]]:
        for start in range(0, len(numbers), _ROWS_AT_ONCE):
            yield rows.read(numbers[start : start + _ROWS_AT_ONCE])

    shape = (len(numbers), *rows.shape[1:])
    pieces = npy_pieces(shape, _NUMPY[rows.dtype], groups())
    file = folder.write(folder.new_name("samples", "npy"), pieces, private=True)
    return SegmentNote(file=file, rows=len(numbers))


def joined(segments: Sequence[StoredRows], *more: StoredRows) -> JoinedRows | None:
    """All samples, counted through; None if there are none."""
    parts = [*segments, *more]
    return JoinedRows(parts) if parts else None
