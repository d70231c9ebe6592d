"""What is kept of the samples: those that are held out, and the statistics of each class.

A head in closed form is computed from the sum of all statistics, which is in the state. There is
also a file of statistics per class, so that a class can be removed exactly. A learner without a
memory also stores statistics of held-out samples, from which samples to measure on are drawn.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from remask.learner.folder import (
    HELD_KEYS,
    HELD_LABELS,
    HELD_SOURCES,
    ROWS_AT_ONCE,
    LearnerFolder,
    Tensors,
)
from remask.learner.manifest import FileNote, Learnt
from remask.learner.settings import damaged
from remask.memory import JoinedRows, StoredRows, fair_shares
from remask.methods.closed_form import LinearHead, ncm, ridge, slda
from remask.methods.statistics import ClassStatistics, PerClassStatistics, StatisticsError
from remask.randomness import generator

HEAD_WEIGHT, HEAD_BIAS = "head/weight", "head/bias"
_SUM = "statistics/"
_TRAINED, _HELD_OUT = 0, 1  # numbers of the samples of a class in its file
_RIDGE_SCALE = 10.0  # from targets of 0 and 1 to scores with a decided softmax
_NCM_SCALE = 10.0
_MOST_DRAWN = 100  # samples of a class
Samples = tuple[Tensor, Tensor]
"""Features [n, D], and the outputs of their classes, int64 [n]."""


class ChosenRows(StoredRows):
    """Some of the rows of others, without a copy."""

    def __init__(self, rows: StoredRows, numbers: Tensor) -> None:
        self._rows, self._numbers = rows, numbers.numpy()
        self.shape, self.dtype = (len(numbers), *rows.shape[1:]), rows.dtype

    def read(self, numbers: NDArray[np.int64]) -> NDArray[Any]:
        """Copy the rows with these numbers."""
        return self._rows.read(self._numbers[numbers])


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
        found, none = tensors or {}, torch.zeros(0, dtype=torch.int64)
        return cls(rows, *(found.get(n, none) for n in (HELD_SOURCES, HELD_LABELS, HELD_KEYS)))

    def tensors(self) -> Tensors:
        """Return the tensors to save in a state."""
        return {HELD_SOURCES: self.sources, HELD_LABELS: self.labels, HELD_KEYS: self.keys}

    def __len__(self) -> int:
        return len(self.labels)

    def batches(self) -> Iterator[Tensor]:
        """Yield the samples as they are kept."""
        for sources in torch.split(self.sources, ROWS_AT_ONCE):
            yield self.rows.take(sources)

    def truth(self, learnt: Learnt) -> Tensor:
        """Return the true columns [n] of their scores."""
        return torch.tensor(learnt.columns)[self.labels]

    def known_to(self, learnt: Learnt) -> "HeldOut":
        """Return the samples of known classes."""
        known = [number for number, name in enumerate(learnt.classes) if name is not None]
        return self._chosen(torch.isin(self.labels, torch.tensor(known, dtype=torch.int64)))

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


class Statistics:
    """The sum of the statistics of all classes, and the files with those of each class."""

    def __init__(self, folder: LearnerFolder, learnt: Learnt, state: Tensors | None) -> None:
        """Read the sum from a state, if there is one; `learnt` has the files and the outputs."""
        self._folder, self._size = folder, learnt.data_note.kept.shape[0]
        self.notes = dict(learnt.statistics)
        """By output, for the next manifest."""
        self._sum = ClassStatistics.empty(learnt.outputs, self._size)
        if (before := pooled_of(state or {})) is not None:
            self._sum.counts[: len(before.counts)] = before.counts
            self._sum.sums[: len(before.counts)] = before.sums
            self._sum.gram = before.gram

    def add(self, new: Samples, held: Samples | None) -> None:
        """Add the samples of a visit, and write the files of the classes that have changed.

        `held` are held-out samples whose statistics are stored as well.
        """
        for output in sorted({*new[1].tolist()}):
            stats = PerClassStatistics(self._size)
            if output in self.notes:
                stats = _read(self._folder, self.notes[output], self._size)
                self._sum.remove(self._total(output, stats))
            for number, (features, labels) in enumerate([new] if held is None else [new, held]):
                stats.add(number, features[labels == output])
            tensors = stats.to_tensors()
            self.notes[output] = self._folder.write_tensors(
                "statistics", tensors, private=True, suffix=f"-{output}"
            )
            rounded = PerClassStatistics.from_tensors(tensors, self._size)
            self._sum.merge(self._total(output, rounded))
        self.notes = dict(sorted(self.notes.items()))

    def remove(self, outputs: Sequence[int]) -> None:
        """Remove the classes of some outputs."""
        for output in outputs:
            stats = _read(self._folder, self.notes.pop(output), self._size)
            self._sum.remove(self._total(output, stats))

    def _total(self, output: int, stats: PerClassStatistics) -> ClassStatistics:
        """Return the statistics of one class as those of a head, without held-out samples."""
        own = PerClassStatistics(self._size)
        own.take(stats, {_TRAINED: output})
        return own.total(len(self._sum.counts))

    def tensors(self) -> Tensors:
        """Return the tensors to save in a state."""
        return {f"{_SUM}{name}": tensor for name, tensor in self._sum.to_tensors().items()}

    def head(self, name: str) -> Tensors:
        """Compute a head: float32 weight [K, D] and bias [K].

        Scores are scaled to a moderate softmax, since there may be few held-out samples to fit
        their temperature to.
        """
        head: LinearHead = {"ncm": ncm, "slda": slda, "ridge": ridge}[name](self._sum)
        scale = {"ncm": _NCM_SCALE / self._spread(), "slda": 1.0, "ridge": _RIDGE_SCALE}[name]
        return {HEAD_WEIGHT: (scale * head.weight).float(), HEAD_BIAS: (scale * head.bias).float()}

    def _spread(self) -> float:
        """Return the mean squared distance of samples from the mean of their class, or 1."""
        stats = self._sum
        assert stats.gram is not None
        within = stats.gram.trace() - (stats.counts * stats.means.square().sum(1)).sum()
        spread = float(within / stats.counts.sum().clamp(min=1))
        return spread if spread > 1e-9 else 1.0


def pooled_of(state: Mapping[str, Tensor]) -> ClassStatistics | None:
    """Return the sum over all classes in a state, if it has one. Raises StatisticsError."""
    own = {n.removeprefix(_SUM): tensor for n, tensor in state.items() if n.startswith(_SUM)}
    return ClassStatistics.from_tensors(own) if own else None


def measured_on(folder: LearnerFolder, learnt: Learnt, held: HeldOut) -> HeldOut:
    """Return the samples to measure on: those that are held out.

    Without a memory, as many are drawn from their statistics. Those of a class depend on nothing
    but its own statistics and the seed.
    """
    settings = folder.manifest.settings
    if settings.memory != 0 or not learnt.statistics:
        return held
    size = learnt.data_note.kept.shape[0]
    features, labels = [torch.zeros(0, size)], [torch.zeros(0, dtype=torch.int64)]
    for output, note in learnt.statistics.items():
        stats = _read(folder, note, size)
        if found := stats.count(_HELD_OUT):
            count = min(found, _MOST_DRAWN)
            random = generator(settings.seed, "held-out statistics")
            noise = torch.from_numpy(random.standard_normal((count, min(found, size))))
            features.append(stats.draw(_HELD_OUT, noise).float())
            labels.append(torch.full((count,), output))
    numbers = torch.arange(sum(map(len, labels)))
    return HeldOut(JoinedRows([torch.cat(features)]), numbers, torch.cat(labels), numbers)


def _read(folder: LearnerFolder, note: FileNote, features: int) -> PerClassStatistics:
    try:
        return PerClassStatistics.from_tensors(folder.read_tensors(note), features)
    except StatisticsError as error:
        raise damaged(folder.path / note.name, str(error)) from error
