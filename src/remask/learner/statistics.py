"""Statistics of features: what heads in closed form are computed from, class by class in files.

The state has their sum over all classes, from which heads are computed. The files have each class
by itself, so that a class can be taken out exactly. A learner without a memory also has statistics
of held-out samples, from which samples to measure on are drawn.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from remask.heads import (
    ClassStatistics,
    HeadName,
    LinearHead,
    PerClassStatistics,
    StatisticsError,
    ncm,
    ridge,
    slda,
)
from remask.learner.errors import damaged
from remask.learner.folder import LearnerFolder
from remask.learner.manifest import Learnt, StatisticsNote
from remask.randomness import generator

POOLED, HEAD = "statistics/", "head/"
_RIDGE_SCALE = 10.0  # from targets of 0 and 1 to scores whose softmax is decided
_NCM_SCALE = 10.0
_MOST_DRAWN = 100  # of a class


def pooled_of(tensors: Mapping[str, Tensor]) -> ClassStatistics:
    """The sum over all classes that a state has. Raises StatisticsError if it is damaged."""
    own = {n.removeprefix(POOLED): t for n, t in tensors.items() if n.startswith(POOLED)}
    return ClassStatistics.from_tensors(own)


def pooled_tensors(stats: ClassStatistics) -> dict[str, Tensor]:
    """What a state saves of them."""
    return {f"{POOLED}{name}": tensor for name, tensor in stats.to_tensors().items()}


def fitted(name: HeadName, stats: ClassStatistics) -> dict[str, Tensor]:
    """The tensors of a head, from statistics alone: float32 weight [K, D] and bias [K].

    Its scores are scaled such that their softmax is neither even nor decided by the largest, since
    their temperature is fitted to held-out samples, of which there may be few.
    """
    head: LinearHead = {"ncm": ncm, "slda": slda, "ridge": ridge}[name](stats)
    scale = 1.0
    if name == "ridge":
        scale = _RIDGE_SCALE
    elif name == "ncm":
        scale = _NCM_SCALE / _spread(stats)
    return {
        f"{HEAD}weight": (scale * head.weight).float(),
        f"{HEAD}bias": (scale * head.bias).float(),
    }


def _spread(stats: ClassStatistics) -> float:
    """The mean squared distance of samples from the mean of their class; 1 where it is 0."""
    assert stats.gram is not None
    means = stats.sums / stats.counts.clamp(min=1).unsqueeze(1)
    within = stats.gram.trace() - (stats.counts * means.square().sum(1)).sum()
    spread = float(within / stats.counts.sum().clamp(min=1))
    return spread if spread > 1e-9 else 1.0


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples of a visit: features [n, D], and the outputs of their classes, int64 [n]."""

    features: Tensor
    labels: Tensor


@dataclass(frozen=True, eq=False)
class Updated:
    """Statistics after a change, and the files of the next manifest."""

    pooled: ClassStatistics
    notes: tuple[StatisticsNote, ...]
    exact: bool


class ClassFiles:
    """The statistics of each class, in the files of a learner.

    In a file, class k has the number 2 k, and its held-out samples have 2 k + 1.
    """

    def __init__(self, folder: LearnerFolder, learnt: Learnt) -> None:
        assert learnt.data is not None
        self._folder, self._learnt = folder, learnt
        self._features = learnt.data.kept.shape[0]

    def updated(
        self, tensors: Mapping[str, Tensor] | None, outputs: int, new: Samples, held: Samples | None
    ) -> Updated:
        """Add samples of a visit, and write the classes that have changed.

        `held` are held-out samples whose statistics are stored as well.
        """
        pooled = ClassStatistics.empty(outputs, self._features)
        if tensors is not None:
            before = pooled_of(tensors)
            old = torch.full((outputs,), -1)
            old[: len(before.counts)] = torch.arange(len(before.counts))
            pooled = before.select(old)
        if not self._learnt.exact:
            pooled.add(new.features, new.labels)
            return Updated(pooled, (), exact=False)
        changed = {2 * label for label in new.labels.tolist()}
        if held is not None:
            changed |= {2 * label + 1 for label in held.labels.tolist()}
        per_class = PerClassStatistics(self._features)
        for note in self._learnt.statistics:
            if common := changed.intersection(note.labels):
                per_class.take(self._read(note), sorted(common))
        pooled.remove(_total(per_class, outputs))
        for part, samples in ((0, new), (1, held)):
            for label in sorted({*samples.labels.tolist()}) if samples is not None else ():
                assert samples is not None
                per_class.add(2 * label + part, samples.features[samples.labels == label])
        per_class = self._as_written(per_class)
        pooled.merge(_total(per_class, outputs))
        live = [
            note.model_copy(update={"labels": tuple(n for n in note.labels if n not in changed)})
            for note in self._learnt.statistics
        ]
        kept: list[StatisticsNote] = []
        for note in live:  # what is left of a file that is hardly used goes into the new one
            if 2 * len(note.labels) > len(note.held):
                kept.append(note)
            elif note.labels:
                per_class.take(self._read(note), note.labels)
        notes = (*kept, self._written(per_class))
        if sum(note.file.size for note in notes) > self._folder.manifest.settings.statistics_bytes:
            return Updated(pooled, (), exact=False)
        return Updated(pooled, notes, exact=True)

    def without(self, outputs: Iterable[int], classes: int) -> Updated:
        """Take classes out: every file that has one is written again without it."""
        gone = {2 * label + part for label in outputs for part in (0, 1)}
        pooled = ClassStatistics.empty(classes, self._features)
        moved, kept = PerClassStatistics(self._features), []
        for note in self._learnt.statistics:
            found = self._read(note)
            live = [label for label in note.labels if label not in gone]
            pooled.merge(_total(found, classes, live))
            if gone.isdisjoint(note.held):
                kept.append(note)
            else:
                moved.take(found, live)
        if moved.labels:
            kept.append(self._written(moved))
        return Updated(pooled, tuple(kept), exact=True)

    def held_out(self, notes: Sequence[StatisticsNote], seed: int) -> Samples:
        """Draw as many samples as were held out, from their statistics.

        Of each class they depend on nothing but its own statistics and the seed.
        """
        features, labels = [torch.zeros(0, self._features)], [torch.zeros(0, dtype=torch.int64)]
        drawn = PerClassStatistics(self._features)
        for note in notes:
            drawn.take(self._read(note), (label for label in note.labels if label % 2))
        for label in drawn.labels:
            count = min(drawn.count(label), _MOST_DRAWN)
            rows = min(drawn.count(label), self._features)
            noise = generator(seed, "held-out statistics").standard_normal((count, rows))
            features.append(drawn.draw(label, torch.from_numpy(noise)).float())
            labels.append(torch.full((count,), label // 2))
        return Samples(torch.cat(features), torch.cat(labels))

    def _read(self, note: StatisticsNote) -> PerClassStatistics:
        path = self._folder.path / note.file.name
        try:
            found = PerClassStatistics.from_tensors(
                self._folder.read_tensors(note.file), self._features
            )
        except StatisticsError as error:
            raise damaged(path, str(error)) from error
        if {*found.labels} != {*note.held}:
            raise damaged(path, "it has other classes than the learner names")
        return found

    def _as_written(self, stats: PerClassStatistics) -> PerClassStatistics:
        """What reading a file gives: numbers are rounded, and sums must not depend on when."""
        return PerClassStatistics.from_tensors(stats.to_tensors(), self._features)

    def _written(self, stats: PerClassStatistics) -> StatisticsNote:
        file = self._folder.write_tensors("statistics", stats.to_tensors(), private=True)
        return StatisticsNote(file=file, labels=tuple(stats.labels), held=tuple(stats.labels))


def approximately_without(stats: ClassStatistics, outputs: Iterable[int]) -> None:
    """Take classes out of the sum, with the covariance of all in place of their own."""
    assert stats.gram is not None
    means = stats.sums / stats.counts.clamp(min=1).unsqueeze(1)
    free = (stats.counts.sum() - stats.seen.sum()).clamp(min=1)
    within = (stats.gram - stats.sums.T @ means) / free
    for label in outputs:
        count = float(stats.counts[label])
        stats.gram -= count * torch.outer(means[label], means[label])
        stats.gram -= max(count - 1, 0) * within
        stats.counts[label] = 0
        stats.sums[label] = 0


def _total(
    stats: PerClassStatistics, outputs: int, labels: Iterable[int] | None = None
) -> ClassStatistics:
    """The sum over classes, without held-out samples."""
    chosen = [label for label in (stats.labels if labels is None else labels) if label % 2 == 0]
    trained = PerClassStatistics(stats.features)
    trained.take(stats, chosen)
    trained.renumber({label: label // 2 for label in chosen})
    return trained.total(outputs)
