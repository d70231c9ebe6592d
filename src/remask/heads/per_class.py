"""Second moments stored per class, so that a class can be removed exactly."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from remask.heads.statistics import ClassStatistics, StatisticsError, check_stored, checked_samples

_ROWS_AT_ONCE = 4096  # of factors that are multiplied together
_NAME = re.compile(r"(0|[1-9][0-9]*)/(count|sum|factor)")


def class_bytes(features: int, samples: int) -> int:
    """Return the size in a file, in bytes, of a class with `samples` samples."""
    return 8 + 8 * features + 4 * _packed_size(samples, features)


@dataclass(frozen=True, eq=False)
class _ClassMoments:
    """Count, sum, and second moments about the mean as a triangular factor."""

    count: int
    total: Tensor
    """float64 [D]."""
    factor: Tensor
    """float64 [min(count, D), D], upper triangular: factor^T factor is the sum of
    (x - mean)(x - mean)^T."""

    @property
    def mean(self) -> Tensor:
        return self.total / self.count

    @classmethod
    def of(cls, features: Tensor) -> "_ClassMoments":
        total = features.sum(0)
        return cls(len(features), total, _triangular(features - total / len(features)))

    def merged(self, other: "_ClassMoments") -> "_ClassMoments":
        """The moments of both sets of samples together."""
        count = self.count + other.count
        between = (self.mean - other.mean) * (self.count * other.count / count) ** 0.5
        rows = torch.cat([self.factor, other.factor, between.unsqueeze(0)])
        factor = _triangular(rows)[: min(count, rows.shape[1])]
        return _ClassMoments(count, self.total + other.total, factor)


class PerClassStatistics:
    """The statistics of each class: what `ClassStatistics` sums up, class by class.

    The second moments of n samples with D features are a triangular factor of min(n, D) rows, which
    takes fewer numbers than the samples, and never more than D (D + 1) / 2. The sum over some
    classes gives the heads of a learner that never saw the others.
    """

    def __init__(self, features: int) -> None:
        self.features = features
        """D."""
        self._classes: dict[int, _ClassMoments] = {}

    @property
    def labels(self) -> list[int]:
        """The classes that have samples, in ascending order."""
        return sorted(self._classes)

    def count(self, label: int) -> int:
        """Return how many samples of a class have been added."""
        return self._classes[label].count if label in self._classes else 0

    def add(self, label: int, features: Tensor) -> None:
        """Add samples [n, D] to a class. Raises StatisticsError."""
        if label < 0:
            raise StatisticsError(f"a label must be 0 or more, got {label}")
        labels = torch.zeros(len(features), dtype=torch.int64)
        features, _ = checked_samples(features, labels, 1, self.features)
        if len(features):
            self._put(label, _ClassMoments.of(features))

    def drop(self, label: int) -> None:
        """Delete all that is stored of a class; nothing happens if it has no samples."""
        self._classes.pop(label, None)

    def merge(self, source: int, target: int) -> None:
        """Make the samples of class `source` samples of class `target`, which may be new."""
        if source not in self._classes:
            raise StatisticsError(f"class {source} has no samples")
        if source != target:
            self._put(target, self._classes.pop(source))

    def renumber(self, labels: Mapping[int, int]) -> None:
        """Give every class its new label, all at once; new labels must differ."""
        if set(labels) != set(self._classes) or len(set(labels.values())) < len(labels):
            raise StatisticsError(
                f"a new label for each of the classes {self.labels} is needed, got {dict(labels)}"
            )
        self._classes = {labels[old]: moments for old, moments in self._classes.items()}

    def total(self, classes: int, labels: Collection[int] | None = None) -> ClassStatistics:
        """Sum up the statistics of some classes, by default all, for heads of K classes."""
        chosen = self.labels if labels is None else sorted(labels)
        if chosen and chosen[-1] >= classes:
            raise StatisticsError(f"class {chosen[-1]} does not fit a head of {classes} classes")
        stats = ClassStatistics.empty(classes, self.features)
        assert stats.gram is not None
        for label in chosen:
            moments = self._classes[label]
            stats.counts[label] = moments.count
            stats.sums[label] = moments.total
        for rows in _together(self._rows(label) for label in chosen):
            stats.gram.addmm_(rows.T, rows)
        return stats

    def take(self, other: "PerClassStatistics", labels: Iterable[int]) -> None:
        """Add the samples of some classes of other statistics of the same features."""
        for label in labels:
            self._put(label, other._classes[label])

    def draw(self, label: int, noise: Tensor) -> Tensor:
        """Draw samples [n, D] from a normal distribution with the moments of a class.

        `noise` is standard normal, [n, r] with r at least the rows of the factor, min(count, D).
        """
        own = self._classes[label]
        free = max(own.count - 1, 1)
        noise = noise[:, : len(own.factor)].to(torch.float64)
        drawn: Tensor = own.mean + noise @ own.factor / free**0.5
        return drawn

    def bytes(self) -> int:
        """Return what all classes take in a file, in bytes."""
        return sum(class_bytes(self.features, own.count) for own in self._classes.values())

    def to_tensors(self, labels: Iterable[int] | None = None) -> dict[str, Tensor]:
        """Return some classes, by default all, as a flat dict of tensors, for one or more files.

        Factors are rounded to float32; counts and sums are exact.
        """
        tensors = {}
        for label in self.labels if labels is None else labels:
            own = self._classes[label]
            rows, columns = torch.triu_indices(*own.factor.shape)
            tensors[f"{label}/count"] = torch.tensor(own.count, dtype=torch.int64)
            tensors[f"{label}/sum"] = own.total.clone()
            tensors[f"{label}/factor"] = own.factor[rows, columns].to(torch.float32)
        return tensors

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], features: int) -> "PerClassStatistics":
        """Read what `to_tensors` returned. Raises StatisticsError if anything is damaged."""
        for name in tensors:
            if _NAME.fullmatch(name) is None:
                raise StatisticsError(f"unknown tensor {name!r} among the statistics of classes")
        found = cls(features)
        for label in sorted({int(name.partition("/")[0]) for name in tensors}):
            parts = [tensors.get(f"{label}/{part}") for part in ("count", "sum", "factor")]
            count, total, packed = parts
            if count is None or total is None or packed is None:
                raise StatisticsError(f"class {label} needs count, sum and factor")
            check_stored(f"{label}/count", count, torch.int64)
            check_stored(f"{label}/sum", total, torch.float64)
            check_stored(f"{label}/factor", packed, torch.float32)
            if count.shape != () or int(count) < 1:
                raise StatisticsError(f"{label}/count must be one number, 1 or more")
            number = int(count)
            size = _packed_size(number, features)
            if total.shape != (features,) or packed.shape != (size,):
                raise StatisticsError(
                    f"class {label} has a sum of {list(total.shape)} and a factor of "
                    f"{list(packed.shape)}; {number} samples of {features} features need "
                    f"[{features}] and [{size}]"
                )
            factor = torch.zeros(min(number, features), features, dtype=torch.float64)
            rows, columns = torch.triu_indices(*factor.shape)
            factor[rows, columns] = packed.to(torch.float64)
            found._classes[label] = _ClassMoments(number, total.clone(), factor)
        return found

    def _put(self, label: int, moments: _ClassMoments) -> None:
        earlier = self._classes.get(label)
        self._classes[label] = moments if earlier is None else earlier.merged(moments)

    def _rows(self, label: int) -> Tensor:
        """Rows [r, D] whose products sum up to the second moments about 0."""
        own = self._classes[label]
        return torch.cat([own.factor, (own.mean * own.count**0.5).unsqueeze(0)])


def _packed_size(samples: int, features: int) -> int:
    """How many numbers the upper triangle of a factor has."""
    rows = min(samples, features)
    return rows * features - rows * (rows - 1) // 2


def _triangular(rows: Tensor) -> Tensor:
    """The upper triangular R with R^T R = rows^T rows, [min(n, D), D].

    Its diagonal is not negative, so it does not depend on the order of rows.
    """
    factor: Tensor = torch.linalg.qr(rows, mode="r").R
    return factor * torch.where(factor.diagonal() < 0, -1.0, 1.0).unsqueeze(1)


def _together(parts: Iterable[Tensor]) -> Iterable[Tensor]:
    """The parts in groups of a few thousand rows: one product of many rows is faster than many."""
    group: list[Tensor] = []
    for part in parts:
        group.append(part)
        if sum(map(len, group)) >= _ROWS_AT_ONCE:
            yield torch.cat(group)
            group = []
    if group:
        yield torch.cat(group)
