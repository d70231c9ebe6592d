"""Statistics of features, from which heads in closed form are computed: one file per class.

The state has their sum over all classes, from which heads are computed. The files make it possible
to remove a class exactly. A learner without a memory also stores statistics of held-out samples,
from which samples to measure on are drawn.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from remask.learner.errors import damaged
from remask.learner.folder import HEAD_BIAS, HEAD_WEIGHT, LearnerFolder
from remask.learner.manifest import Learnt, StatisticsNote
from remask.learner.samples import HeldOut
from remask.memory import JoinedRows
from remask.methods.closed_form import HeadName, LinearHead, ncm, ridge, slda
from remask.methods.statistics import ClassStatistics, PerClassStatistics, StatisticsError
from remask.randomness import generator

POOLED = "statistics/"
_TRAINED, _HELD_OUT = 0, 1  # numbers of the samples of a class in its file
_RIDGE_SCALE = 10.0  # from targets of 0 and 1 to scores with a decided softmax
_NCM_SCALE = 10.0
_MOST_DRAWN = 100  # samples of a class


def pooled_of(tensors: Mapping[str, Tensor]) -> ClassStatistics:
    """Return the sum over all classes in a state. Raises StatisticsError if it is damaged."""
    own = {n.removeprefix(POOLED): t for n, t in tensors.items() if n.startswith(POOLED)}
    return ClassStatistics.from_tensors(own)


def fitted(name: HeadName, stats: ClassStatistics) -> dict[str, Tensor]:
    """Compute the tensors of a head: float32 weight [K, D] and bias [K].

    Scores are scaled to a moderate softmax, since there may be few held-out samples to fit their
    temperature to.
    """
    head: LinearHead = {"ncm": ncm, "slda": slda, "ridge": ridge}[name](stats)
    scale = {"ncm": _NCM_SCALE / _spread(stats), "slda": 1.0, "ridge": _RIDGE_SCALE}[name]
    return {
        HEAD_WEIGHT: (scale * head.weight).float(),
        HEAD_BIAS: (scale * head.bias).float(),
    }


def _spread(stats: ClassStatistics) -> float:
    """The mean squared distance of samples from the mean of their class; 1 where it is 0."""
    assert stats.gram is not None
    within = stats.gram.trace() - (stats.counts * stats.means.square().sum(1)).sum()
    spread = float(within / stats.counts.sum().clamp(min=1))
    return spread if spread > 1e-9 else 1.0


Samples = tuple[Tensor, Tensor]
"""Features [n, D], and the outputs of their classes, int64 [n]."""


@dataclass(frozen=True, eq=False)
class Statistics:
    """The sum over all classes, and the files of the next manifest."""

    pooled: ClassStatistics
    notes: tuple[StatisticsNote, ...]
    exact: bool
    """Whether there is a file for each class."""

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors to save in a state."""
        return {f"{POOLED}{name}": tensor for name, tensor in self.pooled.to_tensors().items()}


class ClassFiles:
    """The statistics of each class, in the files of a learner."""

    def __init__(self, folder: LearnerFolder, learnt: Learnt) -> None:
        assert learnt.data is not None
        self._folder, self._learnt = folder, learnt
        self._features = learnt.data.kept.shape[0]

    def updated(
        self, state: Mapping[str, Tensor] | None, outputs: int, new: Samples, held: Samples | None
    ) -> Statistics:
        """Add samples of a visit, and write the classes that have changed.

        `held` are held-out samples whose statistics are stored as well.
        """
        pooled = ClassStatistics.empty(outputs, self._features)
        if state is not None:
            before = pooled_of(state)
            if len(before.counts) > outputs or before.sums.shape[1] != self._features:
                raise StatisticsError("the statistics of the state do not fit the learner")
            pooled.counts[: len(before.counts)] = before.counts
            pooled.sums[: len(before.counts)] = before.sums
            pooled.gram = before.gram
        if not self._learnt.exact:
            pooled.add(*new)
            return Statistics(pooled, (), exact=False)
        notes = {note.output: note for note in self._learnt.statistics}
        for output in sorted({*new[1].tolist()}):
            stats = PerClassStatistics(self._features)
            if output in notes:
                stats = self._read(notes[output])
                pooled.remove(_total(output, stats, outputs))
            for number, samples in enumerate([new] if held is None else [new, held]):
                features, labels = samples
                stats.add(number, features[labels == output])
            tensors = stats.to_tensors()
            file = self._folder.write_tensors("statistics", tensors, output=output, private=True)
            notes[output] = StatisticsNote(output=output, file=file)
            rounded = PerClassStatistics.from_tensors(tensors, self._features)
            pooled.merge(_total(output, rounded, outputs))
        if (
            sum(n.file.size for n in notes.values())
            > self._folder.manifest.settings.statistics_bytes
        ):
            return Statistics(pooled, (), exact=False)
        return Statistics(pooled, tuple(notes[output] for output in sorted(notes)), exact=True)

    def without(self, outputs: Sequence[int], classes: int) -> Statistics:
        """Return the statistics of the other classes, summed up from their files."""
        kept = [note for note in self._learnt.statistics if note.output not in outputs]
        pooled = ClassStatistics.empty(classes, self._features)
        for note in kept:
            pooled.merge(_total(note.output, self._read(note), classes))
        return Statistics(pooled, tuple(kept), exact=True)

    def held_out(self, notes: Sequence[StatisticsNote], seed: int) -> HeldOut:
        """Draw as many samples as were held out, from their statistics.

        Those of a class depend on nothing but its own statistics and the seed.
        """
        features, labels = [torch.zeros(0, self._features)], [torch.zeros(0, dtype=torch.int64)]
        for note in notes:
            stats = self._read(note)
            found = stats.count(_HELD_OUT)
            if found:
                count, rows = min(found, _MOST_DRAWN), min(found, self._features)
                noise = generator(seed, "held-out statistics").standard_normal((count, rows))
                features.append(stats.draw(_HELD_OUT, torch.from_numpy(noise)).float())
                labels.append(torch.full((count,), note.output))
        numbers = torch.arange(sum(map(len, labels)))
        return HeldOut(JoinedRows([torch.cat(features)]), numbers, torch.cat(labels), numbers)

    def _read(self, note: StatisticsNote) -> PerClassStatistics:
        path, tensors = self._folder.path / note.file.name, self._folder.read_tensors(note.file)
        try:
            found = PerClassStatistics.from_tensors(tensors, self._features)
        except StatisticsError as error:
            raise damaged(path, str(error)) from error
        if not found.count(_TRAINED):
            raise damaged(path, "it has no statistics of samples")
        return found


def _total(output: int, stats: PerClassStatistics, outputs: int) -> ClassStatistics:
    """The statistics of one class as those of a head, without held-out samples."""
    own = PerClassStatistics(stats.features)
    own.take(stats, {_TRAINED: output})
    return own.total(outputs)


def remove_approximately(stats: ClassStatistics, outputs: Iterable[int]) -> None:
    """Remove classes from the sum, with the covariance of all classes in place of their own."""
    assert stats.gram is not None
    means = stats.means
    free = (stats.counts.sum() - stats.seen.sum()).clamp(min=1)
    within = (stats.gram - stats.sums.T @ means) / free
    for label in outputs:
        count = float(stats.counts[label])
        stats.gram -= count * torch.outer(means[label], means[label])
        stats.gram -= max(count - 1, 0) * within
        stats.counts[label] = 0
        stats.sums[label] = 0
