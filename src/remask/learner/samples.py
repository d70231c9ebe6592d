"""The samples that a learner keeps: in segments, files that are written once and never changed.

A sample's number counts through the segments, in the order of the manifest. A visit writes one new
segment with its own samples, and with those of earlier segments that are smaller, or of which less
than half is still in use. So there are few segments, and at least half of each is in use.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from remask.learner.files import check_sha256, mapped, npy_pieces
from remask.learner.folder import (
    HELD_KEYS,
    HELD_LABELS,
    HELD_SOURCES,
    MEMORY_LABELS,
    MEMORY_SOURCES,
    LearnerFolder,
)
from remask.learner.manifest import Learnt, Manifest, SegmentNote
from remask.memory import EMPTY, JoinedRows, StoredRows, fair_shares

_ROWS_AT_ONCE = 64  # more would leave the processor's cache


class ChosenRows(StoredRows):
    """Some of the rows of others, without a copy."""

    def __init__(self, rows: StoredRows, numbers: Tensor) -> None:
        self._rows, self._numbers = rows, numbers.numpy()
        self.shape, self.dtype = (len(numbers), *rows.shape[1:]), rows.dtype

    def copy_rows(self, numbers: NDArray[np.int64]) -> NDArray[Any]:
        """Copy the rows with these numbers."""
        return self._rows.copy_rows(self._numbers[numbers])

    def release(self) -> None:
        """Release mapped memory."""
        self._rows.release()


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Samples of every class that are never learnt from, to measure on."""

    rows: StoredRows
    """All samples that are kept."""
    sources: Tensor
    """int64 [n]: numbers of rows."""
    labels: Tensor
    """int64 [n]: the outputs of their classes."""
    keys: Tensor
    """int64 [n]: those with the smallest keys stay when there are too many."""

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor] | None, rows: StoredRows) -> "HeldOut":
        """Return the held-out samples of a saved state."""
        none = torch.zeros(0, dtype=torch.int64)
        if tensors is None:
            return cls(rows, none, none, none)
        return cls(rows, *(tensors[name] for name in (HELD_SOURCES, HELD_LABELS, HELD_KEYS)))

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors to save in a state."""
        return {HELD_SOURCES: self.sources, HELD_LABELS: self.labels, HELD_KEYS: self.keys}

    def __len__(self) -> int:
        return len(self.labels)

    def batches(self) -> Iterator[Tensor]:
        """Yield the samples as they are kept."""
        for sources in torch.split(self.sources, _ROWS_AT_ONCE):
            yield self.rows.take(sources)

    def truth(self, learnt: Learnt) -> Tensor:
        """Return the true columns [n] of their scores."""
        return torch.tensor(learnt.columns)[self.labels]

    def known_to(self, learnt: Learnt) -> "HeldOut":
        """Return the samples of known classes."""
        known = torch.tensor([name is not None for name in learnt.classes], dtype=torch.bool)
        return self._chosen(
            (self.labels < len(known)) & known[self.labels.clamp(max=len(known) - 1)]
        )

    def and_also(self, sources: Tensor, labels: Tensor, keys: Tensor) -> "HeldOut":
        """Return these and other samples."""
        pairs = ((self.sources, sources), (self.labels, labels), (self.keys, keys))
        return HeldOut(self.rows, *map(torch.cat, pairs))

    def reduced(self, places: int) -> "HeldOut":
        """Return at most `places` samples, spread evenly over classes."""
        quotas = fair_shares(torch.bincount(self.labels).tolist(), places)
        rows = [torch.zeros(0, dtype=torch.int64)]
        for label, quota in enumerate(quotas):
            own = (self.labels == label).nonzero().squeeze(-1)
            rows.append(own[self.keys[own].argsort(stable=True)[:quota]])
        return self._chosen(torch.cat(rows).sort().values)

    def _chosen(self, rows: Tensor) -> "HeldOut":
        return HeldOut(self.rows, self.sources[rows], self.labels[rows], self.keys[rows])


def open_segments(folder: LearnerFolder) -> list[StoredRows]:
    """Open the files of samples. Raises LearnerError if one is damaged."""
    found: list[StoredRows] = []
    for note in folder.manifest.segments:
        assert folder.manifest.data is not None
        kept, path = folder.manifest.data.kept, folder.path / note.file.name
        check_sha256(path, note.file.sha256)
        found.append(mapped(path, (note.rows, *kept.shape), kept.dtype))
    return found


def kept_rows(folder: LearnerFolder) -> StoredRows:
    """Return all samples that are kept, counted through; there may be none."""
    data = folder.manifest.data
    assert data is not None
    none = torch.zeros(0, *data.kept.shape, dtype=data.kept.tensor_type)
    return JoinedRows(open_segments(folder) or [none])


def memory_of(tensors: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the sources [n] and labels [n] of the samples in the memory of a state."""
    none = torch.zeros(0, dtype=torch.int64)
    labels = tensors.get(MEMORY_LABELS, none).cpu()
    filled = labels != EMPTY
    return tensors.get(MEMORY_SOURCES, none).cpu()[filled], labels[filled]


def save_state(
    folder: LearnerFolder,
    manifest: Manifest,
    tensors: Mapping[str, Tensor],
    rows: StoredRows,
    *,
    rewrite: bool = False,
    private: bool = False,
) -> Manifest:
    """Write a state and its samples; return the manifest that names the new files.

    `rows` are those of the segments, and behind them those of a visit. With `rewrite`, no segment
    contains a sample that is not in use.
    """
    used = np.unique(torch.cat([tensors[HELD_SOURCES], memory_of(tensors)[0]]).numpy())
    segments = folder.manifest.segments
    ends = np.cumsum([0, *(segment.rows for segment in segments)])
    live = [used[(used >= start) & (used < end)] for start, end in pairwise(ends)]
    moved = used[used >= ends[-1]]
    stay: list[int] = []
    for number in reversed(range(len(segments))):
        count = len(live[number])
        if rewrite or 2 * count < segments[number].rows or count <= len(moved):
            moved = np.concatenate([live[number], moved])
        else:
            stay.insert(0, number)
    kept, before, after, start = [segments[number] for number in stay], [], [], 0
    for number in stay:
        before.append(live[number])
        after.append(live[number] - ends[number] + start)
        start += segments[number].rows
    if len(moved):
        kept.append(_write_segment(folder, rows, moved))
    before, after = [*before, moved], [*after, start + np.arange(len(moved))]
    numbers = torch.zeros(len(rows) + 1, dtype=torch.int64)  # 0 for rows that are not in use
    numbers[torch.from_numpy(np.concatenate(before))] = torch.from_numpy(np.concatenate(after))
    changed = {HELD_SOURCES: numbers[tensors[HELD_SOURCES]]}
    if MEMORY_SOURCES in tensors:
        empty = tensors[MEMORY_LABELS].cpu() == EMPTY
        sources = tensors[MEMORY_SOURCES].cpu().masked_fill(empty, len(rows))
        changed[MEMORY_SOURCES] = numbers[sources]
    state = folder.write_tensors("state", {**tensors, **changed}, private=private)
    return manifest.model_copy(update={"state": state, "segments": tuple(kept)})


def _write_segment(
    folder: LearnerFolder, rows: StoredRows, numbers: NDArray[np.int64]
) -> SegmentNote:
    groups = (
        rows.read(numbers[start : start + _ROWS_AT_ONCE])
        for start in range(0, len(numbers), _ROWS_AT_ONCE)
    )
    dtype = str(rows.dtype).removeprefix("torch.")
    pieces = npy_pieces((len(numbers), *rows.shape[1:]), dtype, groups)
    file = folder.write("samples", ".npy", pieces, private=True)
    return SegmentNote(file=file, rows=len(numbers))
